"""The description of the JSON API, made from the tables of pages and changes."""

from __future__ import annotations

import inspect
import re
from typing import Any

import msgspec

from fusee import __version__
from fusee.console.changes import CHANGES, Outcome
from fusee.console.pages import PAGES

_REF = "#/components/schemas/{name}"


def description() -> dict[str, Any]:
    """An OpenAPI 3.1 document."""
    types = [*(page.answers for page in PAGES), *(change.takes for change in CHANGES), Outcome]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for page in PAGES:
        path = "/api" + (page.path if page.path != "/" else "/overview")
        names = re.findall(r"\{(\w+)\}", page.path)
        parameters = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ] + [{"name": name, "in": "query", "required": False, "schema": {"type": "string"}} for name in page.query]
        paths[path] = {
            "get": {
                "operationId": page.ask.__name__,
                "summary": (inspect.getdoc(page.ask) or "").splitlines()[0],
                "parameters": parameters,
                "responses": _responses(by_type[page.answers]),
            }
        }
    for change in CHANGES:
        paths[f"/api/changes/{change.name}"] = {
            "post": {
                "operationId": change.do.__name__,
                "summary": (inspect.getdoc(change.takes) or "").splitlines()[0],
                "parameters": [
                    {"name": "X-CSRF-Token", "in": "header", "required": True, "schema": {"type": "string"}}
                ],
                "requestBody": {"required": True, "content": {"application/json": {"schema": by_type[change.takes]}}},
                "responses": _responses(by_type[Outcome]),
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fusee console",
            "version": __version__,
            "description": "Every page of the console as JSON. GET /api/session gives the token that changes need.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _responses(schema: dict[str, Any]) -> dict[str, Any]:
    error = {
        "content": {"application/json": {"schema": {"type": "object", "properties": {"error": {"type": "string"}}}}}
    }
    return {
        "200": {"description": "the answer", "content": {"application/json": {"schema": schema}}},
        "400": {"description": "what was asked for is not right", **error},
        "401": {"description": "log in first", **error},
        "403": {"description": "the token is missing or wrong", **error},
        "404": {"description": "there is no such thing", **error},
        "502": {"description": "the cluster refused, or did not answer", **error},
    }
