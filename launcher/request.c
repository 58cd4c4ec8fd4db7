/* SPDX-License-Identifier: Apache-2.0 */
#include "request.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "status.h"

enum kind { NUMBER, TEXT, CHOICE };

struct option {
    const char *name;
    enum kind kind;
    const char *choices; /* of a CHOICE: " allowed words " */
    const char *value;
};

enum { NCGPUS, MODE, POOLMEM, LOCALITY, POLICY, MODEL, CAPABILITY, HOSTS, HOST, NAME, OPTIONS };

/* Whether it is a number of at least 1 with at most 9 decimal digits. JSON allows no leading zero. */
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

/* Append a member of a JSON object, if the option is given. */
static void add_member(struct text *body, const char *name, const struct option *option)
{
    if (!option->value)
        return;
    text_print(body, ",\"%s\":", name);
    if (option->kind == NUMBER)
        text_print(body, "%s", option->value);
    else
        text_json(body, option->value);
}

/* Append the body of the request: the options given, and this user and host as the consumer. */
static void print_body(struct text *body, const struct option *options, const char *wait)
{
    char hostname[256] = "";
    text_print(body, "{\"lease\":{\"cgpus\":{\"count\":%s", options[NCGPUS].value);
    add_member(body, "mode", &options[MODE]);
    add_member(body, "memory_mb", &options[POOLMEM]);
    add_member(body, "locality", &options[LOCALITY]);
    add_member(body, "policy", &options[POLICY]);
    add_member(body, "gpu_model", &options[MODEL]);
    add_member(body, "compute_capability", &options[CAPABILITY]);
    add_member(body, "hosts", &options[HOSTS]);
    add_member(body, "host", &options[HOST]);
    text_print(body, "},\"server\":null,\"keepalive\":%d", KEEPALIVE);
    add_member(body, "name", &options[NAME]);
    if (wait)
        text_print(body, ",\"wait\":%s,\"attended\":true", *wait ? wait : "null");
    gethostname(hostname, sizeof hostname - 1);
    text_print(body, ",\"consumer\":{\"host\":");
    text_json(body, hostname);
    text_print(body, ",\"uid\":%u}}}", (unsigned)getuid());
}

bool request_read(char **words, struct request *request)
{
    struct option options[OPTIONS] = {
        [NCGPUS] = {"ncgpus", NUMBER, NULL, NULL},
        [MODE] = {"mode", CHOICE, " exclusive shared ", NULL},
        [POOLMEM] = {"poolmem", NUMBER, NULL, NULL},
        [LOCALITY] = {"locality", CHOICE, " any local remote ", NULL},
        [POLICY] = {"policy", TEXT, NULL, NULL},
        [MODEL] = {"model", TEXT, NULL, NULL},
        [CAPABILITY] = {"capability", TEXT, NULL, NULL},
        [HOSTS] = {"hosts", CHOICE, " any one spread ", NULL},
        [HOST] = {"host", TEXT, NULL, NULL},
        [NAME] = {"name", TEXT, NULL, NULL},
    };
    const char *wait = NULL;
    int consumed = 1;
    for (; *words && strcmp(*words, "--") != 0; words += consumed) {
        consumed = 1;
        if (!read_wait(*words, &wait) && !read_option(words, options, &consumed))
            return false;
    }
    bool shared = options[MODE].value && strcmp(options[MODE].value, "shared") == 0;
    if (!*words || !words[1] || !options[NCGPUS].value || shared != (options[POOLMEM].value != NULL))
        return false;
    request->command = words + 1;
    request->waits = wait != NULL;
    print_body(&request->body, options, wait);
    return true;
}
