"""Arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

NAMED = "Id, short id, an ending of it, the name it was given, or `last`."

Job = Annotated[str, typer.Argument(metavar="ID", help=NAMED)]
"""One job. `crucible.client.sdk.job_lookup.find_job` takes it."""

Jobs = Annotated[list[str], typer.Argument(metavar="ID…", help="Ids, short ids, endings of them, names, or `last`.")]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
