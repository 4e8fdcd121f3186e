"""The secrets of a job, asked for when everything else is ready. They stay in memory and are written nowhere."""

from __future__ import annotations

from collections.abc import Sequence

from crucible.agent.link.backoff import Backoff
from crucible.agent.link.channel import Channel, Refused, Unreachable
from crucible.agent.runner.staging_context import StagingContext, StagingError
from crucible.wire.documents.crypto import NoCryptography

TOLD_AFTER = 2


def fetch_secrets(wanted: Sequence[str], channel: Channel, work: StagingContext) -> dict[str, str]:
    """Values by variable, however long the server is away. Raises StageError, Abandoned, Gone."""
    backoff, tries = Backoff(), 0
    while wanted:
        work.check_aborted()
        try:
            found = channel.secrets()
            break
        except Unreachable as error:
            tries += 1
            if tries == TOLD_AFTER:
                work.status(f"waiting for the job's secrets: {error}")
            work.aborted.wait(backoff.next())
        except NoCryptography as error:
            raise StagingError(f"the job's secrets cannot be read here: {error}") from error
        except Refused as error:
            raise StagingError(f"the job's secrets were not handed over: {error}") from error
    else:
        return {}
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise StagingError(
            f"the server handed over no value for {missing[0]}; set the secret again, then resume the job"
        )
    return {name: found[name] for name in wanted}
