"""Finishing an attempt whose runner died."""

from __future__ import annotations

import logging

from crucible.agent.clock import boottime
from crucible.agent.link.channel import ChannelError, Gone
from crucible.agent.process.user_process import UserProcess, confinement_name
from crucible.agent.runner import runner_state as rs
from crucible.agent.runner.exit_record import LOST
from crucible.agent.runner.runner import Runner
from crucible.wire.documents.messages import MessageKind

log = logging.getLogger(__name__)


class RecoveryRunner(Runner):
    """The life of a runner whose predecessor died after the user's process may have been started.

    It starts nothing: it ends what is left, says so, and delivers what there is.
    """

    def _make_user(self) -> tuple[UserProcess, str]:
        left = self._machine.limiter.find_left(confinement_name(self._assignment))
        return UserProcess.from_record(self._folder.process, self._marks(), left), ""

    def _begin(self) -> rs.Step:
        self._user.end_all()
        said = {message.kind for message in self._spool.all_messages()}
        if MessageKind.ENDED in said:
            return rs.RunnerState(0.0, None, boottime(), rs.Phase.ENDED), (rs.Finish(),)
        state = rs.RunnerState(0.0, None, boottime(), rs.Phase.SAVING)
        told = self._exit.read()
        if MessageKind.EXITED in said or (told is not None and self._spool.first > told.after + 1):
            return state, (rs.StoreOutputs(),)
        exited = rs.SendMessage(MessageKind.EXITED, dict(LOST if told is None else told.data))
        return state, (exited, rs.StoreOutputs())

    def _store_outputs(self) -> None:
        """What the job left may name its secrets; where they are not handed out again it goes without."""
        channel = self._channel()
        try:
            self._hide(tuple(channel.secrets().values()) if self._assignment.secrets else ())
        except Gone:
            self._contacts.release_attempt()
        except ChannelError as error:
            log.warning("what is left of the job is not redacted: %s", error)
        finally:
            channel.close()
        super()._store_outputs()
