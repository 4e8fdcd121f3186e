"""Answers of the server, read as the views they should be."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from crucible.client.http import Response
from crucible.client.views import View
from crucible.core.errors import Trouble

V = TypeVar("V", bound=View)


def read(kind: type[V], response: Response) -> V:
    try:
        return kind.model_validate_json(response.content)
    except ValidationError as error:
        raise Trouble(
            "The server's answer cannot be understood.",
            why=f"{error.error_count()} fields of {kind.__name__} differ; first: {error.errors()[0]['loc']}.",
            fix="Check that it is a Crucible server, and its version, with `crucible doctor`.",
        ) from error
