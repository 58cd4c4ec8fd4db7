# SPDX-License-Identifier: Apache-2.0
"""Validates bodies and queries against their schemas, and explains in one sentence what is wrong.

    check = Schema({"type": "object", ...}).check
    check(body)     # BadRequest: lease.cgpus.count is 0; it must be a whole number from 1 to …

Two things are stricter than in JSON Schema: 2.0 is not an integer, and `$` in a pattern matches only at the very
end, not before a final line break.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jsonschema
from jsonschema import Draft202012Validator

from gsaas import exceptions
from gsaas.api import microversions, times

MAX_QUOTED_LENGTH = 60
"""Characters of an invalid value that the error message repeats."""
CACHE_SIZE = 1000
"""Values that a schema remembers as valid."""
TYPES = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "null",
    "object": "an object",
    "string": "text",
}
"""JSON Schema's name of a type -> what error messages call it."""
MAX_CACHED_LENGTH = 1000
"""Characters of the longest value that is remembered."""


def _is_integer(_checker: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _pattern(
    _validator: Any, pattern: str, text: Any, _schema: Any
) -> Iterator[jsonschema.ValidationError]:
    # In Python's regular expressions `$` also matches before a line break at the end; `\Z` does not.
    ending = pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern
    if isinstance(text, str) and not re.search(ending, text):
        yield jsonschema.ValidationError(f"{text!r} does not match {pattern!r}")


@functools.cache
def _validator_class(version: str) -> Any:
    """Return the class of validators that refuse a field which is newer than microversion *version*."""

    def too_new(
        _validator: Any, _since: Any, _instance: Any, schema: Any
    ) -> Iterator[jsonschema.ValidationError]:
        since = microversions.since_of(schema)
        if not microversions.supports(version, since):
            yield jsonschema.ValidationError(since)

    return jsonschema.validators.extend(  # type: ignore[no-untyped-call]  # the stubs leave it untyped
        Draft202012Validator,
        validators={"pattern": _pattern, microversions.SINCE: too_new},
        type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
    )


class Schema:
    """A JSON schema, compiled once and used for every request. Safe to share between threads.

    A field that its schema says is newer than the microversion of a request (`microversions.SINCE`) is not valid in it.

    Values found valid are remembered: many requests are equal, and a look-up takes a tenth of the time of a
    validation.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        Draft202012Validator.check_schema(schema)
        self.schema = schema
        self._validators: dict[str, Any] = {}
        """Microversion -> the compiled schema."""
        self._valid: set[str] = set()

    def check(
        self, value: Any, version: str = microversions.NEWEST, name: str = "the body"
    ) -> None:
        """Raise `BadRequest` unless *value* is valid in microversion *version*.

        *name* is what the message calls the whole value.
        """
        # repr() and not the value itself, because 1, 1.0 and True are equal and hash alike.
        text = f"{version} {value!r}"
        if text in self._valid:
            return
        if version not in self._validators:
            self._validators[version] = _validator_class(version)(self.schema)
        errors = list(self._validators[version].iter_errors(value))
        if errors:
            raise exceptions.BadRequest(reason=_explain_best(errors, version, name))
        if len(text) <= MAX_CACHED_LENGTH:
            if len(self._valid) >= CACHE_SIZE:
                self._valid = set()
            self._valid.add(text)


def _explain_best(errors: list[jsonschema.ValidationError], version: str, name: str) -> str:
    """Return what is wrong: that a field is too new, for which the header is the remedy, or else the best match."""
    for error in _with_context(errors):
        if error.validator == microversions.SINCE:
            return microversions.explain(_path(error), error.message, version)
    best = jsonschema.exceptions.best_match(errors)
    return explain(best or errors[0], name)


def _with_context(
    errors: Iterable[jsonschema.ValidationError],
) -> Iterator[jsonschema.ValidationError]:
    """Yield these errors and those of the alternatives that each of them stands for."""
    for error in errors:
        yield error
        yield from _with_context(error.context or ())


def parse_query(
    schema: Schema, pairs: list[tuple[str, str]], version: str = microversions.NEWEST
) -> dict[str, Any]:
    """Return the names and values of a query string, converted to the types in *schema*; raises `BadRequest`."""
    values: dict[str, Any] = {}
    for name, text in pairs:
        json_type = schema.schema["properties"].get(name, {}).get("type")
        if json_type == "array":  # given once for each item
            values.setdefault(name, []).append(text)
        elif name in values:
            raise exceptions.BadRequest(reason=f"{name} is given twice in the query")
        else:
            values[name] = _convert(text, json_type)
    if values or "required" in schema.schema:
        schema.check(values, version, "the query")
    return values


def _convert(text: str, json_type: str | None) -> Any:
    """Return *text* as a value of *json_type*, or unchanged if it is not one: the schema then refuses it."""
    if json_type == "integer" and re.fullmatch(r"-?[0-9]{1,10}", text):
        return int(text)
    if json_type == "boolean" and text in ("true", "false"):
        return text == "true"
    return text


def explain(error: jsonschema.ValidationError, name: str) -> str:
    """Return a sentence that names the invalid field, its value and what it may be.

    *name* is what to call the whole value.
    """
    field = _path(error) or name
    # The stubs allow values that the library sets only on errors which no validator has reported.
    schema: Any = error.schema
    instance: Any = error.instance
    keyword: Any = error.validator_value
    if error.validator == "required":
        missing = next(name for name in keyword if name not in instance)
        allowed = _allowed(schema.get("properties", {}).get(missing, {}))
        return f"{_join(error, missing)} is missing; it must be {allowed}"
    if error.validator == "additionalProperties":
        known = schema["properties"]
        unknown = next(name for name in instance if name not in known)
        fields = ", ".join(known) if known else "none at all"
        return f"{field} has no field {_quote(unknown)}; its fields are {fields}"
    return f"{field} is {_quote(instance)}; it must be {_allowed(schema)}"


def _join(error: jsonschema.ValidationError, name: str) -> str:
    path = _path(error)
    return f"{path}.{name}" if path else name


def _path(error: jsonschema.ValidationError) -> str:
    path = "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path
    )
    return path.removeprefix(".")


def _quote(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_QUOTED_LENGTH else text[:MAX_QUOTED_LENGTH] + "…"


def _allowed(schema: Mapping[str, Any]) -> str:
    """Return a description of the values that *schema* allows, to follow "it must be"."""
    if schema.get("pattern") == times.PATTERN:
        return f"{times.FORM}: {schema['description']}"
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if "not" in schema:
        return str(schema["description"])
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
        case "array" if schema.get("uniqueItems"):
            return f"given at most {schema['maxItems']} times, each time with another value"
        case "array" if "enum" in schema["items"]:  # of a query
            return f"given at most {schema['maxItems']} times"
        case "array":
            return f"a list: {schema['description']}"
        case "string" if "maxLength" in schema:
            shortest, longest = schema["minLength"], schema["maxLength"]
            return f"one line of {shortest} to {longest} characters, without control characters"
        case list(types):
            what = " or ".join(TYPES[name] for name in types)
            return f"{what}: {schema['description']}" if "description" in schema else what
        case _:
            return f"text: {schema['description']}" if "description" in schema else "text"
