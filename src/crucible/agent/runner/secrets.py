"""The secrets of a job, asked for when everything else is ready. They stay in memory and are written nowhere."""

from __future__ import annotations

from collections.abc import Sequence

from crucible.agent.link.backoff import Backoff
from crucible.agent.link.channel import Channel, Refused, Unreachable
from crucible.agent.runner.staging_context import StageError, StageWork
from crucible.wire.documents.crypto import NoCryptography

TOLD_AFTER = 2


def handed_secrets(wanted: Sequence[str], channel: Channel, work: StageWork) -> dict[str, str]:
    """Values by variable, however long the server is away. Raises StageError, Abandoned, Gone."""
    backoff, tries = Backoff(), 0
    while wanted:
        work.check()
        try:
            found = channel.secrets()
            break
        except Unreachable as error:
            tries += 1
            if tries == TOLD_AFTER:
                work.say(f"waiting for the job's secrets: {error}")
            work.abandoned.wait(backoff.next())
        except NoCryptography as error:
            raise StageError(f"the job's secrets cannot be read here: {error}") from error
        except Refused as error:
            raise StageError(f"the job's secrets were not handed over: {error}") from error
    else:
        return {}
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise StageError(f"the server handed over no value for {missing[0]}; set the secret again, then resume the job")
    return {name: found[name] for name in wanted}
