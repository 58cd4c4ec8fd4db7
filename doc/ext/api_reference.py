# SPDX-License-Identifier: Apache-2.0
"""The directive `api-reference`: every operation of the served OpenAPI document, with examples.

sphinxcontrib-openapi renders OpenAPI 3.0: it shows nothing of the types and `$ref`s of 3.1. The examples are those of
doc/api.md, which a test runs.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gsaas.api import errors, openapi, routes
from gsaas.exceptions import GsaasError

Schema = Mapping[str, Any]

GUIDE = Path(__file__).resolve().parents[1] / "api.md"
EXAMPLE = re.compile(r"```http\n(?P<request>.*?)```\n\n```http\n(?P<answer>.*?)```", re.DOTALL)
RANGES = (
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "pattern",
    "format",
)


class ApiReference(SphinxDirective):
    """Describes the operations by kind of resource, then the schemas and errors that several of them share."""

    def run(self) -> list[nodes.Node]:
        """Return the nodes of the description."""
        self.env.note_dependency(str(GUIDE))
        lines = list(describe(openapi.document(routes.ROUTES), GUIDE.read_text(encoding="utf-8")))
        container = nodes.section()
        container.document = self.state.document
        self.state.nested_parse(StringList(lines, "openapi.json"), 0, container, match_titles=1)
        return container.children


def describe(document: Schema, guide: str) -> Iterator[str]:
    """Yield *document* as reStructuredText, with the examples of *guide*."""
    examples = list(EXAMPLE.finditer(guide))
    operations = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    for tag in dict.fromkeys(operation["tags"][0] for _, _, operation in operations):
        yield from _title(tag.capitalize(), "-")
        for method, path, operation in operations:
            if operation["tags"][0] == tag:
                yield from _operation(method.upper(), path, operation)
                yield from _examples(method.upper(), path, examples)
    yield from _title("Schemas", "-")
    for name, schema in document["components"]["schemas"].items():
        yield from (f".. _api-schema-{name.lower()}:", "", *_title(name, "~"))
        if text := schema.get("description"):
            yield from (_text(text), "")
        yield from _fields(schema)
    yield from _errors()


def _operation(method: str, path: str, operation: Schema) -> Iterator[str]:
    yield from (f".. _api-{operation['operationId']}:", "", *_title(f"{method} {path}", "~"))
    yield from (_text(operation["summary"]), "")
    if rule := operation.get("x-rbac-rule"):
        yield from (f"Access rule: ``{rule}`` (:doc:`all rules <access-rules>`)", "")
    else:
        yield from ("It needs no token.", "")
    yield from _parameters(operation["parameters"])
    if body := operation.get("requestBody"):
        yield from ("**Body of the request**", "")
        yield from _fields(body["content"]["application/json"]["schema"])
    by_content: dict[str, list[str]] = {}
    wrong = []
    for status, answer in operation["responses"].items():
        if int(status) < 400:
            content = "\n".join(_content(answer.get("content", {})))
            by_content.setdefault(content, []).append(status)
        else:
            wrong.append((f":ref:`{status} <api-errors-{status}>`", _text(answer["description"])))
    for content, statuses in by_content.items():
        yield from (f"**Answer {' or '.join(sorted(statuses))}**", "", *content.splitlines(), "")
    yield from ("**Errors**", "")
    yield from _table(("status", "when"), wrong)


def _parameters(parameters: list[Schema]) -> Iterator[str]:
    if parameters:
        yield from ("**Parameters**", "")
        rows = [
            (f"``{parameter['name']}``", parameter["in"], *_described(parameter["schema"]))
            for parameter in parameters
        ]
        yield from _table(("name", "in", "type", "meaning"), rows)


def _content(content: Mapping[str, Schema]) -> Iterator[str]:
    for kind, media in content.items():
        if kind == "application/json":
            yield from _fields(media["schema"])
        else:
            yield from (f"Or text, as ``{kind}``.", "")
    if not content:
        yield from ("No body.", "")


def _fields(schema: Schema) -> Iterator[str]:
    """Yield a table of the fields of *schema*; or its type, if it has none."""
    rows = list(_rows(schema, "", required=True))
    if rows and rows[0][0] != "``(body)``":
        yield from _table(("field", "required", "type", "meaning"), rows)
    else:
        yield from (_type(schema).capitalize() if "$ref" not in schema else _type(schema), "")


def _rows(schema: Schema, name: str, *, required: bool) -> Iterator[tuple[str, ...]]:
    """Yield a row for *schema*, unless it is the whole, and for each field in it."""
    if name:
        yield (f"``{name}``", "yes" if required else "", *_described(schema))
    for inner_schema, suffix in _inner(schema):
        for field, inner in inner_schema.get("properties", {}).items():
            whole = f"{name}{suffix}.{field}" if name or suffix else field
            yield from _rows(inner, whole, required=field in inner_schema.get("required", ()))


def _inner(schema: Schema) -> Iterator[tuple[Schema, str]]:
    """Yield the objects that are written within *schema*, each with how their fields' names go on."""
    for alternative in (schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())):
        if "properties" in alternative:
            yield alternative, ""
        if "properties" in alternative.get("items", {}):
            yield alternative["items"], "[]"


def _described(schema: Schema) -> tuple[str, str]:
    """Return the type of *schema* and what it means."""
    meaning = _text(schema.get("description", ""))
    if "default" in schema:
        meaning += f" Default: ``{schema['default']}``."
    return _type(schema), meaning.strip()


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f":ref:`{name} <api-schema-{name.lower()}>`"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(map(_type, schema[key])))
    if "const" in schema:
        return f"``{schema['const']}``"
    if "enum" in schema:
        return ", ".join(f"``{'null' if word is None else word}``" for word in schema["enum"])
    kind = schema.get("type", "any value")
    text = " or ".join(kind) if isinstance(kind, list | tuple) else kind
    if kind == "array":
        text = f"list of {_type(schema.get('items', {}))}"
    limits = [f"{key} ``{schema[key]}``" for key in RANGES if key in schema]
    return f"{text} ({', '.join(limits)})" if limits else text


def _examples(method: str, path: str, examples: list[re.Match[str]]) -> Iterator[str]:
    """Yield the first example of each status with which the guide shows this operation answered."""
    pattern = re.compile(re.sub(r"{\w+}", "[^/?]+", path) + r"(?:\?.*)?")
    shown = set()
    for example in examples:
        verb, url = example["request"].partition("\n")[0].split(" ")
        status = example["answer"].partition(" ")[0]
        if verb == method and pattern.fullmatch(url) and status not in shown:
            shown.add(status)
            yield from (f"**Example, answered {status}**", "")
            yield from _literal(example["request"])
            yield from _literal(example["answer"])


def _errors() -> Iterator[str]:
    yield from _title("Errors", "-")
    yield from ("The body of every error has the form :ref:`Errors <api-schema-errors>`.", "")
    for status, group in itertools.groupby(sorted(error_codes()), key=lambda error: error[0]):
        yield from (f".. _api-errors-{status}:", "", *_title(str(status), "~"))
        rows = [(f"``{code}``", _text(meaning)) for _, code, meaning in group]
        yield from _table(("code", "meaning"), rows)


def error_codes() -> set[tuple[int, str, str]]:
    """Return every code with its status and what it means."""
    found = {(status, code): detail for status, code, detail in errors.LIBRARY_ERRORS.values()}
    waiting = [GsaasError]
    for family in waiting:
        waiting += family.__subclasses__()
        if "code" in vars(family):
            summary = (family.__doc__ or "").partition("\n")[0]
            found[family.status, family.code] = summary
    return {(status, code, meaning) for (status, code), meaning in found.items()}


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield from (".. list-table::", "   :header-rows: 1", "")
    for row in (heads, *rows):
        for number, cell in enumerate(row):
            yield f"   {'*' if number == 0 else ' '} - {cell}".rstrip()
    yield ""


def _title(text: str, line: str) -> list[str]:
    return [text, line * len(text), ""]


def _literal(text: str) -> list[str]:
    return [".. code-block:: http", "", *(f"   {line}".rstrip() for line in text.splitlines()), ""]


def _text(text: str) -> str:
    """Return a paragraph whose code is in backticks, for reStructuredText."""
    parts = re.split(r"`([^`]+)`", " ".join(text.split()))
    return "".join(
        f"``{part}``" if i % 2 else re.sub(r"([\\*_|`])", r"\\\1", part)
        for i, part in enumerate(parts)
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("api-reference", ApiReference)
    return {"parallel_read_safe": True}
