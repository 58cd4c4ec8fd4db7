/* SPDX-License-Identifier: Apache-2.0 */
#include "request.h"

#include <err.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api.h"
#include "status.h"

enum kind { NUMBER, TEXT, CHOICE, ID };

struct option {
    const char *name;
    enum kind kind;
    const char *choices; /* of a CHOICE: " allowed words " */
    const char *value;
};

enum { NCGPUS, KIND, MODE, POOLMEM, LOCALITY, POLICY, MODEL, CAPABILITY, HOSTS, HOST, NAME, RESERVATION, FOR, OPTIONS };

/* Whether it is a number of at least 1, without the unit that gsaas-cli knows, with at most 9 decimal digits. JSON allows no leading zero. */
static bool is_number(const char *value)
{
    size_t length = strlen(value);
    return length > 0 && length <= 9 && *value != '0' && strspn(value, "0123456789") == length;
}

static bool is_one_of(const char *value, const char *choices)
{
    const char *found = strstr(choices, value);
    return *value && !strchr(value, ' ') && found && found[-1] == ' ' && found[strlen(value)] == ' ';
}

/* Whether it is the id of a reservation: gsaas-cli finds those that are named otherwise. */
static bool is_id(const char *value)
{
    return strlen(value) == 36 && strspn(value, "0123456789abcdef-") == 36;
}

/* Whether it is printable ASCII. Any other text, whose encoding has to be checked, is left to gsaas-cli. */
static bool is_text(const char *value)
{
    for (; *value; value++)
        if ((unsigned char)*value < 0x20 || (unsigned char)*value > 0x7e)
            return false;
    return true;
}

static bool is_valid(const struct option *option)
{
    switch (option->kind) {
    case NUMBER:
        return is_number(option->value);
    case CHOICE:
        return is_one_of(option->value, option->choices);
    case ID:
        return is_id(option->value);
    default:
        return *option->value && is_text(option->value);
    }
}

/* Parse `-name=value` or `-name value`, with one dash or two; *consumed* is set to the number of words. */
static bool read_option(char **words, struct option *options, int *consumed)
{
    const char *word = words[0];
    if (word[0] != '-')
        return false;
    word += word[1] == '-' ? 2 : 1;
    size_t length = strcspn(word, "=");
    for (int i = 0; i < OPTIONS; i++) {
        struct option *option = &options[i];
        if (strlen(option->name) != length || strncmp(option->name, word, length) != 0)
            continue;
        *consumed = word[length] == '=' ? 1 : 2;
        const char *value = *consumed == 1 ? word + length + 1 : words[1];
        if (option->value || !value || (*consumed == 2 && *value == '-'))
            return false;
        option->value = value;
        return is_valid(option);
    }
    return false;
}

/* Parse `-wait` or `-wait=SECONDS`; *seconds* is set to "" for a wait without end. */
static bool read_wait(const char *word, const char **seconds)
{
    word += word[0] == '-';
    word += word[0] == '-';
    if (*seconds || strncmp(word, "wait", 4) != 0)
        return false;
    if (word[4] == '\0')
        *seconds = "";
    else if (word[4] == '=' && is_number(word + 5))
        *seconds = word + 5;
    return *seconds != NULL;
}

/* Return what an option is in JSON. */
static json_t *value_of(const struct option *option)
{
    return option->kind == NUMBER ? json_integer(atol(option->value)) : json_string(option->value);
}

/* Set a member of a JSON object, if the option is given. */
static void add_member(json_t *object, const char *name, const struct option *option)
{
    if (option->value)
        json_object_set_new(object, name, value_of(option));
}

/* Return the body of the request: the options given, and this user and host as the consumer. */
static char *make_body(const struct option *options, const char *wait)
{
    char hostname[256] = "";
    gethostname(hostname, sizeof hostname - 1);
    json_t *cgpus = json_object();
    add_member(cgpus, "count", &options[NCGPUS]);
    add_member(cgpus, "kind", &options[KIND]);
    add_member(cgpus, "mode", &options[MODE]);
    add_member(cgpus, "memory_mb", &options[POOLMEM]);
    add_member(cgpus, "locality", &options[LOCALITY]);
    add_member(cgpus, "policy", &options[POLICY]);
    add_member(cgpus, "gpu_model", &options[MODEL]);
    add_member(cgpus, "compute_capability", &options[CAPABILITY]);
    add_member(cgpus, "hosts", &options[HOSTS]);
    add_member(cgpus, "host", &options[HOST]);
    json_t *lease = json_pack("{s:o,s:n,s:i,s:{s:s,s:I}}", "cgpus", cgpus, "server", "keepalive", KEEPALIVE, "consumer",
                              "host", hostname, "uid", (json_int_t)getuid());
    add_member(lease, "name", &options[NAME]);
    add_member(lease, "reservation", &options[RESERVATION]);
    add_member(lease, "duration", &options[FOR]);
    if (wait) {
        json_object_set_new(lease, "wait", *wait ? json_integer(atol(wait)) : json_null());
        json_object_set_new(lease, "attended", json_true());
    }
    json_t *document = json_pack("{s:o}", "lease", lease);
    char *body = document ? json_dumps(document, JSON_COMPACT) : NULL;
    if (!body)
        errx(STATUS_FAILED, "no memory");
    json_decref(document);
    return body;
}

bool request_read(char **words, struct request *request)
{
    struct option options[OPTIONS] = {
        [NCGPUS] = {"ncgpus", NUMBER, NULL, NULL},
        [KIND] = {"kind", CHOICE, " cuda cpu ", NULL},
        [MODE] = {"mode", CHOICE, " exclusive shared ", NULL},
        [POOLMEM] = {"poolmem", NUMBER, NULL, NULL},
        [LOCALITY] = {"locality", CHOICE, " any local remote ", NULL},
        [POLICY] = {"policy", TEXT, NULL, NULL},
        [MODEL] = {"model", TEXT, NULL, NULL},
        [CAPABILITY] = {"capability", TEXT, NULL, NULL},
        [HOSTS] = {"hosts", CHOICE, " any one spread ", NULL},
        [HOST] = {"host", TEXT, NULL, NULL},
        [NAME] = {"name", TEXT, NULL, NULL},
        [RESERVATION] = {"reservation", ID, NULL, NULL},
        [FOR] = {"for", NUMBER, NULL, NULL}, /* in seconds; gsaas-cli reads other units */
    };
    const char *wait = NULL;
    int consumed = 1;
    for (; *words && strcmp(*words, "--") != 0; words += consumed) {
        consumed = 1;
        if (!read_wait(*words, &wait) && !read_option(words, options, &consumed))
            return false;
    }
    if (options[POOLMEM].value && !options[MODE].value)
        options[MODE].value = "shared";
    bool shared = options[MODE].value && strcmp(options[MODE].value, "shared") == 0;
    if (!*words || !words[1] || !options[NCGPUS].value || shared != (options[POOLMEM].value != NULL))
        return false;
    request->command = words + 1;
    request->waits = wait != NULL;
    request->version = options[RESERVATION].value ? RESERVATIONS_VERSION : API_VERSION;
    if (options[KIND].value)
        request->version = KINDS_VERSION;
    if (options[FOR].value)
        request->version = ENDS_VERSION;
    request->body = make_body(options, wait);
    return true;
}
