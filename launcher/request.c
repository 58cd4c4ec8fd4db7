#include "request.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "status.h"

enum kind { NUMBER, TEXT, WORD };

struct option {
    const char *name;
    enum kind kind;
    const char *words; /* " allowed words " of a WORD */
    const char *value;
};

enum { NCGPUS, MODE, POOLMEM, LOCALITY, POLICY, MODEL, CAPABILITY, HOSTS, HOST, NAME, OPTIONS };

/* Decimal digits, not too many, at least 1, and no zero before the first: JSON knows none. */
static bool is_number(const char *value)
{
    size_t length = strlen(value);
    return length > 0 && length <= 9 && *value != '0' && strspn(value, "0123456789") == length;
}

static bool is_one_of(const char *value, const char *words)
{
    const char *found = strstr(words, value);
    return *value && !strchr(value, ' ') && found && found[-1] == ' ' && found[strlen(value)] == ' ';
}

/* UTF-8 is the API's to judge; what no line of a terminal contains is not worth a rule of its own. */
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
    case WORD:
        return is_one_of(option->value, option->words);
    default:
        return *option->value && is_text(option->value);
    }
}

/* -name=value, -name value, and both with two dashes; the words used up are *taken*. */
static bool read_option(char **words, struct option *options, int *taken)
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
        *taken = word[length] == '=' ? 1 : 2;
        const char *value = *taken == 1 ? word + length + 1 : words[1];
        if (option->value || !value || (*taken == 2 && *value == '-'))
            return false;
        option->value = value;
        return is_valid(option);
    }
    return false;
}

/* -wait and -wait=SECONDS; *seconds* becomes "" for ever. */
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

static void member(struct text *body, const char *name, const struct option *option)
{
    if (!option->value)
        return;
    text_print(body, ",\"%s\":", name);
    if (option->kind == NUMBER)
        text_print(body, "%s", option->value);
    else
        text_json(body, option->value);
}

static void print_body(struct text *body, const struct option *options, const char *wait)
{
    char here[256] = "";
    text_print(body, "{\"lease\":{\"cgpus\":{\"count\":%s", options[NCGPUS].value);
    member(body, "mode", &options[MODE]);
    member(body, "memory_mb", &options[POOLMEM]);
    member(body, "locality", &options[LOCALITY]);
    member(body, "policy", &options[POLICY]);
    member(body, "gpu_model", &options[MODEL]);
    member(body, "compute_capability", &options[CAPABILITY]);
    member(body, "hosts", &options[HOSTS]);
    member(body, "host", &options[HOST]);
    text_print(body, "},\"server\":null,\"keepalive\":%d", KEEPALIVE);
    member(body, "name", &options[NAME]);
    if (wait)
        text_print(body, ",\"wait\":%s,\"attended\":true", *wait ? wait : "null");
    gethostname(here, sizeof here - 1);
    text_print(body, ",\"consumer\":{\"host\":");
    text_json(body, here);
    text_print(body, ",\"uid\":%u}}}", (unsigned)getuid());
}

bool request_read(char **words, struct request *request)
{
    struct option options[OPTIONS] = {
        [NCGPUS] = {"ncgpus", NUMBER, NULL, NULL},
        [MODE] = {"mode", WORD, " exclusive shared ", NULL},
        [POOLMEM] = {"poolmem", NUMBER, NULL, NULL},
        [LOCALITY] = {"locality", WORD, " any local remote ", NULL},
        [POLICY] = {"policy", TEXT, NULL, NULL},
        [MODEL] = {"model", TEXT, NULL, NULL},
        [CAPABILITY] = {"capability", TEXT, NULL, NULL},
        [HOSTS] = {"hosts", WORD, " any one spread ", NULL},
        [HOST] = {"host", TEXT, NULL, NULL},
        [NAME] = {"name", TEXT, NULL, NULL},
    };
    const char *wait = NULL;
    int taken = 1;
    for (; *words && strcmp(*words, "--") != 0; words += taken) {
        taken = 1;
        if (!read_wait(*words, &wait) && !read_option(words, options, &taken))
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
