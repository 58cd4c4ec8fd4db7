"""Hold a body or a query against its schema, and say what is wrong in one sentence.

    check = Schema({"type": "object", ...}).check
    check(body)     # BadRequest: lease.cgpus.count is 0; it must be a whole number from 1 to …

Two things are stricter than JSON Schema: 2.0 is not a whole number, and `$` in a pattern is the
very end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
from jsonschema import Draft202012Validator

from gsaas import exceptions

SHOWN = 60
"""Characters of a wrong value that its message repeats."""
REMEMBERED = 1000
"""Values that a schema knows to be right."""
LONGEST = 1000
"""Characters of a value that is remembered."""


def _is_integer(_checker: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _pattern(
    _validator: Any, pattern: str, text: Any, _schema: Any
) -> Iterator[jsonschema.ValidationError]:
    ending = pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern
    if isinstance(text, str) and not re.search(ending, text):
        yield jsonschema.ValidationError(f"{text!r} does not match {pattern!r}")


_Validator = jsonschema.validators.extend(
    Draft202012Validator,
    validators={"pattern": _pattern},
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)


class Schema:
    """A JSON schema, compiled once and used for every request.

    Many requests say the same, and looking a value up takes a tenth of the time of going through it.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        _Validator.check_schema(schema)
        self.schema = schema
        self._validator = _Validator(schema)
        self._right: set[str] = set()

    def check(self, value: Any, whole: str = "the body") -> None:
        """Return if *value* is as it must be, else raise `BadRequest`; *whole* is what to call it."""
        said = repr(value)
        if said in self._right:
            return
        error = jsonschema.exceptions.best_match(self._validator.iter_errors(value))
        if error is not None:
            raise exceptions.BadRequest(reason=sentence(error, whole))
        if len(said) <= LONGEST:
            if len(self._right) >= REMEMBERED:
                self._right = set()
            self._right.add(said)


def query(schema: Schema, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Return a query string as values of the types in *schema*; raises `BadRequest`."""
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name in values:
            raise exceptions.BadRequest(reason=f"{name} is given twice in the query")
        values[name] = _typed(text, schema.schema["properties"].get(name, {}).get("type"))
    if values or "required" in schema.schema:
        schema.check(values, "the query")
    return values


def _typed(text: str, wanted: str | None) -> Any:
    if wanted == "integer" and re.fullmatch(r"-?[0-9]{1,10}", text):
        return int(text)
    if wanted == "boolean" and text in ("true", "false"):
        return text == "true"
    return text


def sentence(error: jsonschema.ValidationError, whole: str) -> str:
    """Say which field is wrong, how, and what it may be."""
    field = _path(error) or whole
    if error.validator == "required":
        missing = next(name for name in error.validator_value if name not in error.instance)
        wanted = _allowed(error.schema.get("properties", {}).get(missing, {}))
        return f"{_joined(error, missing)} is missing; it must be {wanted}"
    if error.validator == "additionalProperties":
        known = error.schema["properties"]
        surplus = next(name for name in error.instance if name not in known)
        fields = ", ".join(known) if known else "none at all"
        return f"{field} has no field {_quoted(surplus)}; its fields are {fields}"
    return f"{field} is {_quoted(error.instance)}; it must be {_allowed(error.schema)}"


def _joined(error: jsonschema.ValidationError, name: str) -> str:
    path = _path(error)
    return f"{path}.{name}" if path else name


def _path(error: jsonschema.ValidationError) -> str:
    path = "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path
    )
    return path.removeprefix(".")


def _quoted(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def _allowed(schema: Mapping[str, Any]) -> str:
    """Describe what *schema* allows, in the words of a person."""
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if "not" in schema:
        return schema["description"]
    match schema.get("type"):
        case "integer" if "minimum" in schema:
            return f"a whole number from {schema['minimum']} to {schema['maximum']}"
        case "integer":
            return f"a whole number: {schema['description']}"
        case ["integer", "null"]:
            return f"a whole number from {schema['minimum']} to {schema['maximum']}, or null"
        case "boolean":
            return "true or false"
        case "object":
            return "an object"
        case "string" if "maxLength" in schema:
            least, most = schema["minLength"], schema["maxLength"]
            return f"one line of {least} to {most} characters, without control characters"
        case _:
            return f"text: {schema['description']}" if "description" in schema else "text"
