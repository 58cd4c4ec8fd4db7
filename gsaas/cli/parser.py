"""How a command line is read: words in, values or one helpful sentence out.

GSaaS's spelling is older than the habits of argparse, which would guess at `-loc=local`, take
`-lname` for `-l -name`, and cannot be told not to. The rules here:

1. A command is its word (`launch`), or one of the actions `-l` and `-t` anywhere on the line.
2. An option is written `-name=value`, `-name value`, and the same with two dashes. Never shortened.
3. An option is given once, unless it says that it may be repeated.
4. One that may do without a value takes a number after a space, and nothing else.
5. What follows a lone `--` is not ours: only a command that runs another one takes it.

This file knows no command; `gsaas.cli.commands` is the table of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace

from gsaas.cli.statuses import FAILED

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from typing import Any

HELP = ("h", "help")
MOST_DIGITS = 18
FOR_EVER = 0
"""What an option for seconds means without a value."""


class UsageError(Exception):
    """The line says something that is not understood; `command` is the one it was meant for."""

    def __init__(self, message: str, command: str | None = None) -> None:
        super().__init__(message)
        self.command = command


class HelpWanted(Exception):
    """The line asks for help: with `command`, or with the program if that is None."""

    def __init__(self, command: str | None) -> None:
        super().__init__(command)
        self.command = command


def text(value: str) -> str:
    return value


def whole_number(value: str) -> int:
    """A whole number of at least 1."""
    # isdecimal, because int() also takes "1_000", " 2 " and a sign.
    if not (value.isascii() and value.isdecimal() and value.strip("0")):
        raise ValueError(f"needs a whole number of at least 1, not '{value}'")
    if len(value) > MOST_DIGITS:
        raise ValueError(f"is larger than anything here: {value[:MOST_DIGITS]}…")
    return int(value)


def any_number(value: str) -> int:
    """A whole number, which may be below 0."""
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()):
        raise ValueError(f"needs a whole number, not '{value}'")
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"is beyond anything here: {value[:MOST_DIGITS]}…")
    return int(value)


def one_of(*allowed: str) -> Callable[[str], str]:
    """One of a few words."""

    def convert(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"is {' or '.join(allowed)}, not '{value}'")
        return value

    return convert


class Option:
    """One option of a command. *metavar* stands for its value in the help; None makes it a flag.

    *bare* is its value when it is given without one, if it may be. Then what follows after a space is its
    value only if it is a number.
    """

    def __init__(
        self,
        name: str,
        metavar: str | None,
        help: str,
        *,
        convert: Callable[[str], Any] = text,
        aliases: Sequence[str] = (),
        default: Any = None,
        repeated: bool = False,
        bare: Any = None,
    ) -> None:
        self.name = name
        self.metavar = metavar
        self.help = help
        self.convert = convert
        self.names = (name, *aliases)
        self.repeated = repeated
        self.bare = bare
        self.default = False if metavar is None else [] if repeated else default

    def read(self, value: str) -> Any:
        if not value:
            raise UsageError(f"-{self.name} needs a value: -{self.name}={self.metavar}")
        try:
            return self.convert(value)
        except ValueError as error:
            raise UsageError(f"-{self.name} {error}") from None


class Command:
    """One thing the program does, and what its line may say.

    *handler* is the `module:function` of `gsaas.cli` that does it; *action* is the letter that
    stands for the word, as in `-l`; *positional* names the option that may be given without its
    name; *runs* says that what follows `--` is a command of the caller's; *alone* that it does not ask the
    API, and is given None for a client; *failed* is the exit status when it is GSaaS that fails.
    """

    def __init__(
        self,
        word: str,
        summary: str,
        *,
        handler: str,
        usage: str,
        example: str,
        options: Iterable[Option] = (),
        positional: str | None = None,
        runs: bool = False,
        alone: bool = False,
        failed: int = FAILED,
        action: str | None = None,
        more: str = "",
    ) -> None:
        self.word = word
        self.summary = summary
        self.handler = handler
        self.usage = usage
        self.example = example
        self.options = tuple(options)
        self.positional = positional
        self.runs = runs
        self.alone = alone
        self.failed = failed
        self.action = action
        self.more = more


def parse(words: Sequence[str], commands: Mapping[str, Command]) -> tuple[Command, SimpleNamespace]:
    """Return the command, and its options' values by name; `theirs` holds the words after `--`.

    Raises `UsageError`, and `HelpWanted` when the line asks for help or says nothing.
    """
    words = list(words)
    ours, theirs = words, []
    if "--" in words:
        cut = words.index("--")
        ours, theirs = words[:cut], words[cut + 1 :]
    command, ours = _command(ours, commands)
    try:
        if theirs and not command.runs:
            raise UsageError(f"gsaas {command.word} runs no command: nothing may follow --")
        values = _values(command, ours)
    except UsageError as error:
        error.command = command.word
        raise
    values.theirs = theirs
    return command, values


def _command(words: list[str], commands: Mapping[str, Command]) -> tuple[Command, list[str]]:
    """Which command the line is for, and the line without the word that said so."""
    if not words or words == ["help"]:
        raise HelpWanted(None)
    first, *rest = words
    if first == "help":
        first, rest = rest[0], ["-help"]
    if not first.startswith("-"):
        if first in commands:
            return commands[first], rest
        raise UsageError(f"there is no command '{first}'{_nearest(first, commands)}")

    actions = {name: c for c in commands.values() if c.action for name in (c.action, c.word)}
    asked = {actions[word.lstrip("-")].word for word in words if _name(word) in actions}
    if len(asked) > 1:
        raise UsageError("-l (launch) and -t (terminate) do not go together")
    if asked:
        command = commands[asked.pop()]
        own = (command.action, command.word)
        return command, [word for word in words if _name(word) not in own]
    if any(_name(word) in HELP for word in words):
        raise HelpWanted(None)
    raise UsageError(
        "say what to do: -l launches, -t terminates, and a command such as list comes first"
    )


def _name(word: str) -> str | None:
    """The name if *word* is an option without a value."""
    return word.lstrip("-") if word.startswith("-") else None


def _values(command: Command, words: list[str]) -> SimpleNamespace:
    known = {name: option for option in command.options for name in option.names}
    values = SimpleNamespace(**{option.name: option.default for option in command.options})
    seen = set()
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        option, value = _option(command, known, word, rest)
        if option.repeated:
            values.__dict__[option.name] = [*getattr(values, option.name), value]
            continue
        if option.name in seen:
            raise UsageError(f"-{option.name} is given twice")
        seen.add(option.name)
        setattr(values, option.name, value)
    return values


def _option(
    command: Command, known: Mapping[str, Option], word: str, rest: list[str]
) -> tuple[Option, Any]:
    """Read one option, taking its value from the end of *rest* where it is a word of its own."""
    if not word.startswith("-") or word == "-":
        if command.positional is None:
            raise UsageError(f"gsaas {command.word} does not know what to do with '{word}'")
        option = known[command.positional]
        return option, option.read(word)

    name, equals, value = word.lstrip("-").partition("=")
    if name in HELP:
        raise HelpWanted(command.word)
    if name not in known:
        raise UsageError(f"gsaas {command.word} has no option -{name}{_nearest(name, known, '-')}")
    option = known[name]
    if option.metavar is None:
        if equals:
            raise UsageError(f"-{name} takes no value")
        return option, True
    if not equals and option.bare is not None and not (rest and rest[-1].isdecimal()):
        return option, option.bare
    if not equals:
        value = rest.pop() if rest else ""
        if (_name(value.partition("=")[0]) or "") in known:  # the next option: no value was given
            value = ""
    return option, option.read(value)


def _nearest(name: str, known: Iterable[str], dash: str = "") -> str:
    """`; did you mean …?`, if something is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {dash}{near[0]}?" if near else ""
