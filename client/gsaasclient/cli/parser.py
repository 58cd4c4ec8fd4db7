# SPDX-License-Identifier: Apache-2.0
"""The command-line parser of `gsaas`: a list of words in, a command and its option values out.

argparse is not used, because the published command lines do not follow its conventions: it would accept `-loc=local`
as an abbreviation, read `-lname` as `-l -name`, and offers no way to switch both off. The rules here:

1. A command is given by its name (`launch`) as the first word, or by one of the actions `-l` and `-t` anywhere.
2. An option is written `-name=value` or `-name value`, with one dash or two. Names are never abbreviated.
3. An option is given at most once, unless it is declared as repeatable.
4. An option whose value may be left out takes the next word as its value only if that word begins with a digit.
5. The words after a lone `--` are not parsed. Only a command that runs another command accepts them.
6. `-h`, `-help` and `--help` ask for help wherever an option may stand, also where a value is missing.

This module knows no command; `gsaasclient.cli.commands` declares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace

from gsaasclient.cli.exit_statuses import FAILED

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from typing import Any

HELP = ("h", "help")
VARIABLE_PREFIX = "os-"
"""How options begin that other programs of OpenStack have, and `gsaas` has as variables of the environment."""
NUMBER = "ncgpus"
"""The option that who types a bare number means."""
MAX_DIGITS = 18
FOREVER = 0
"""The value of an option in seconds that is given without a value."""


class UsageError(Exception):
    """The command line is not valid. `command` is the name of the command it was meant for, if that is known."""

    def __init__(self, message: str, command: str | None = None) -> None:
        super().__init__(message)
        self.command = command


class HelpRequested(Exception):
    """The command line asks for the help of `command`, or for the help of the program if that is None."""

    def __init__(self, command: str | None) -> None:
        super().__init__(command)
        self.command = command


def text(value: str) -> str:
    """Return *value* unchanged: the converter of options that take any text."""
    return value


def whole_number(value: str) -> int:
    """Convert to a whole number of at least 1. Raises `ValueError`."""
    # isdecimal, because int() also accepts "1_000", " 2 " and a sign.
    if not (value.isascii() and value.isdecimal() and value.strip("0")):
        raise ValueError(f"needs a whole number of at least 1, not '{value}'")
    if len(value) > MAX_DIGITS:
        raise ValueError(f"is too large: {value[:MAX_DIGITS]}…")
    return int(value)


def capability(value: str) -> str:
    """Return a CUDA compute capability. Raises `ValueError`."""
    major, dot, minor = value.partition(".")
    if not (value.isascii() and major.isdecimal() and (minor.isdecimal() if dot else True)):
        raise ValueError(f"is a CUDA compute capability such as 8.0, not '{value}'")
    return value


def any_number(value: str) -> int:
    """Convert to a whole number, which may be negative. Raises `ValueError`."""
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()):
        raise ValueError(f"needs a whole number, not '{value}'")
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"is too large or too small: {value[:MAX_DIGITS]}…")
    return int(value)


class OneOf:
    """A converter that accepts the words *allowed*."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        self.allowed = allowed

    def __call__(self, value: str) -> str:
        """Return *value*. Raises `ValueError` unless it is one of the allowed words."""
        if value not in self.allowed:
            *others, last = self.allowed
            raise ValueError(f"is {', '.join(others)} or {last}, not '{value}'")
        return value


def one_of(*allowed: str) -> OneOf:
    """Return a converter that accepts the words *allowed* and raises `ValueError` for any other."""
    return OneOf(allowed)


class Option:
    """One option of a command; its value is found under its name, with `_` instead of `-`.

    *metavar* stands for the value in the help; None makes the option a flag. *bare_value* is the value of the option
    when it is given without one; None means that a value is required. *mistaken_names* are not accepted; where one of
    them is given, the error message names this option instead.
    """

    def __init__(
        self,
        name: str,
        metavar: str | None,
        help: str,
        *,
        convert: Callable[[str], Any] = text,
        aliases: Sequence[str] = (),
        mistaken_names: Sequence[str] = (),
        default: Any = None,
        repeatable: bool = False,
        bare_value: Any = None,
    ) -> None:
        self.name = name
        self.attribute = name.replace("-", "_")
        self.metavar = metavar
        self.help = help
        self.convert = convert
        self.names = (name, *aliases)
        self.mistaken_names = tuple(mistaken_names)
        self.repeatable = repeatable
        self.bare_value = bare_value
        self.default = False if metavar is None else [] if repeatable else default

    def is_value(self, word: str) -> bool:
        """Return whether *word* is one of the few words that this option accepts, such as `json` of the format."""
        return isinstance(self.convert, OneOf) and word in self.convert.allowed

    def parse_value(self, value: str) -> Any:
        """Return *value* converted. Raises `UsageError` if it is empty or not valid."""
        if not value:
            raise UsageError(f"-{self.name} needs a value: -{self.name}={self.metavar}")
        try:
            return self.convert(value)
        except ValueError as error:
            raise UsageError(f"-{self.name} {error}") from None


class Help:
    """What the help of a command says; *details* are the paragraphs at its end."""

    def __init__(self, summary: str, *, usage: str, example: str, details: str = "") -> None:
        self.summary = summary
        self.usage = usage
        self.example = example
        self.details = details


class Handler:
    """What runs a command.

    function        the `module:function` of `gsaasclient.cli`
    offline         whether the function does not call the API: its client is then None
    failure_status  the exit status for failures of GSaaS
    lends_terminal  whether the terminal becomes that of a picture, which lines of ours would spoil
    """

    def __init__(
        self,
        function: str,
        *,
        offline: bool = False,
        failure_status: int = FAILED,
        lends_terminal: bool = False,
    ) -> None:
        self.function = function
        self.offline = offline
        self.failure_status = failure_status
        self.lends_terminal = lends_terminal


class CommandSpec:
    """One command of the program: its names, its help, what runs it, and its options.

    action          a letter that selects the command as an option: `l` for `-l`
    mistaken_names  other names that users try; the error message then names this command
    positional      the name of the option whose value may be given without the name
    takes_command   whether the words after `--` are accepted, as the command to run
    """

    def __init__(
        self,
        name: str,
        help: Help,
        handler: Handler,
        *,
        options: Iterable[Option] = (),
        positional: str | None = None,
        takes_command: bool = False,
        action: str | None = None,
        mistaken_names: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.help = help
        self.handler = handler
        self.options = tuple(options)
        self.positional = positional
        self.takes_command = takes_command
        self.action = action
        self.mistaken_names = tuple(mistaken_names)


def parse(
    words: Sequence[str], commands: Mapping[str, CommandSpec]
) -> tuple[CommandSpec, SimpleNamespace]:
    """Return the command, and the values of its options as attributes by option name.

    The attribute `remainder` is the list of words after `--`. Raises `UsageError` if the line is not valid, and
    `HelpRequested` if it asks for help or is empty.
    """
    words = list(words)
    remainder: list[str] = []
    if "--" in words:
        separator = words.index("--")
        words, remainder = words[:separator], words[separator + 1 :]
    command, words = _find_command(words, commands)
    try:
        if remainder and not command.takes_command:
            raise UsageError(f"gsaas {command.name} runs no command: nothing may follow --")
        values = _parse_options(command, words)
    except UsageError as error:
        error.command = command.name
        raise
    values.remainder = remainder
    return command, values


def _find_command(
    words: list[str], commands: Mapping[str, CommandSpec]
) -> tuple[CommandSpec, list[str]]:
    """Return the command, and *words* without the word that names it."""
    if not words or words == ["help"]:
        raise HelpRequested(None)
    first, *rest = words
    if first == "help":
        first, rest = rest[0], ["-help"]
    if not first.startswith("-"):
        if first in commands:
            return commands[first], rest
        raise UsageError(f"there is no command '{first}'{_suggest_command(first, commands)}")

    actions = {name: c for c in commands.values() if c.action for name in (c.action, c.name)}
    given = {actions[word.lstrip("-")].name for word in words if _option_name(word) in actions}
    if len(given) > 1:
        raise UsageError("-l (launch) and -t (terminate) cannot be combined")
    if given:
        command = commands[given.pop()]
        names = (command.action, command.name)
        return command, [word for word in words if _option_name(word) not in names]
    if any(_option_name(word) in HELP for word in words):
        raise HelpRequested(None)
    if first.lstrip("-").startswith(VARIABLE_PREFIX):
        raise UsageError(f"there is no option {first.partition('=')[0]}{_suggest_variable(first)}")
    raise UsageError(
        "no command is given: -l launches, -t terminates, and any other command, such as list, is the first word"
    )


def _option_name(word: str) -> str | None:
    """Return the name if *word* is an option without a value, else None."""
    return word.lstrip("-") if word.startswith("-") else None


def _parse_options(command: CommandSpec, words: list[str]) -> SimpleNamespace:
    options = {name: option for option in command.options for name in option.names}
    values = SimpleNamespace(**{option.attribute: option.default for option in command.options})
    seen = set()
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        option, value = _parse_option(command, options, word, rest)
        if option.repeatable:
            # A new list each time: the default one belongs to the option.
            setattr(values, option.attribute, [*getattr(values, option.attribute), value])
            continue
        if option.name in seen:
            if command.takes_command and not word.startswith("-"):
                raise _command_without_dashes(word)
            raise UsageError(f"-{option.name} is given twice")
        seen.add(option.name)
        setattr(values, option.attribute, value)
    return values


def _parse_option(
    command: CommandSpec, options: Mapping[str, Option], word: str, rest: list[str]
) -> tuple[Option, Any]:
    """Return the option that *word* gives, and its value.

    *rest* contains the words that follow, in reverse order; a value that is a word of its own is removed from its end.
    """
    if not word.startswith("-") or word == "-":
        if command.positional is None:
            if command.takes_command:
                raise _command_without_dashes(word)
            meant = [f"-{NUMBER}={word}"] if word.isdecimal() and NUMBER in options else []
            raise UsageError(
                f"gsaas {command.name} takes no argument '{word}'{_did_you_mean(meant)}"
            )
        option = options[command.positional]
        return option, option.parse_value(word)

    name, equals, value = word.lstrip("-").partition("=")
    if name in HELP:
        raise HelpRequested(command.name)
    if name not in options:
        raise UsageError(
            f"gsaas {command.name} has no option -{name}"
            f"{_suggest_option(name, value or (rest[-1] if rest else ''), command, options)}"
        )
    option = options[name]
    if option.metavar is None:
        if equals:
            raise UsageError(f"-{name} takes no value")
        return option, True
    if not equals and option.bare_value is not None and not (rest and rest[-1][:1].isdecimal()):
        return option, option.bare_value
    if not equals:
        value = rest.pop() if rest else ""
        if _option_name(value) in HELP:
            raise HelpRequested(command.name)
        # A word that is an option of this command is not a value: the value was left out.
        if (_option_name(value.partition("=")[0]) or "") in options:
            value = ""
    return option, option.parse_value(value)


def _command_without_dashes(word: str) -> UsageError:
    return UsageError(f"put -- before the command: -- {word} …")


def _suggest_command(name: str, commands: Mapping[str, CommandSpec]) -> str:
    """Return `; did you mean …?` for a command that does not exist, or an empty string."""
    meant = [c.help.usage.partition(" [")[0] for c in commands.values() if name in c.mistaken_names]
    return _did_you_mean(meant or _similar(name, commands))


def _suggest_option(
    name: str, value: str, command: CommandSpec, options: Mapping[str, Option]
) -> str:
    """Return a suggestion for an option that does not exist, or an empty string.

    *value* is the value that was given with it, or the word that follows.
    """
    if name.startswith(VARIABLE_PREFIX):
        return _suggest_variable(name)
    meant = [
        f"-{option.name}={value}" if option.is_value(value) else f"-{option.name}"
        for option in command.options
        if name in option.mistaken_names
    ]
    # The value of an option, written like an option: --json.
    meant += [f"-{option.name}={name}" for option in command.options if option.is_value(name)]
    return _did_you_mean(meant or [f"-{known}" for known in _similar(name, options)])


def _suggest_variable(word: str) -> str:
    """Return a suggestion for one of the options with which other programs of OpenStack take credentials."""
    name = word.lstrip("-").partition("=")[0]
    return f"; set {name.upper().replace('-', '_')} in the environment instead"


def _similar(name: str, known: Iterable[str]) -> list[str]:
    # Imported here, because only a mistake needs it.
    from difflib import get_close_matches

    return get_close_matches(name, list(known), n=1)


def _did_you_mean(names: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(names)}?" if names else ""
