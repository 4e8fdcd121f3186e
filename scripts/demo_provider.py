"""Plays the provider in the demo: takes the job's spot machine back, with notice, once it has saved enough.

demo_provider.py reclaim --after STEP --notice SECONDS
demo_provider.py close
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from crucible import __version__
from crucible.backends.rehearsal import stop_cloud
from crucible.backends.rehearsal.connection import CallFailed, Connection
from crucible.client.api import Api
from crucible.client.server.connection import connect_if_up, make_embedded
from crucible.core.errors import CrucibleError, Unreachable
from crucible.core.views.jobs import JobView
from crucible.settings import Settings, load_settings

LOOK_SECONDS = 0.3
PLACE = "rehearsal"


def main() -> int:
    arguments = parse()
    settings = load_settings()
    try:
        if arguments.do == "close":
            stop_cloud(settings.home.value / PLACE)
        else:
            reclaim(settings, arguments.after, arguments.notice)
    except (CrucibleError, CallFailed) as error:
        say(f"The provider of the demo failed: {error}")
        return 1
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Play the provider in the demo.")
    verbs = parser.add_subparsers(dest="do", required=True)
    verbs.add_parser("close", help="stop the simulated cloud and what runs there")
    taking = verbs.add_parser("reclaim", help="take back the machine of the job that runs")
    taking.add_argument("--after", type=int, required=True, help="once a checkpoint of this step or later is kept")
    taking.add_argument("--notice", type=float, required=True, help="seconds between the word and the deed")
    return parser.parse_args()


def reclaim(settings: Settings, after: int, notice: float) -> None:
    api = connect_if_up(settings, make_embedded(settings, __version__, os.environ))
    if api is None:
        raise Unreachable("No server is up.")
    job, step = once_saved(api, after)
    instance = next(m.native_id for m in api.compute.machines() if m.id == job.machine)
    cloud = Connection(settings.home.value / PLACE)
    cloud.call("POST", f"/admin/instances/{instance}/reclaim", {"notice": notice})
    say(f">>> Step {step} is saved. The provider takes the machine back: it will be gone in {notice:g} seconds.")


def once_saved(api: Api, after: int) -> tuple[JobView, int]:
    """The job that runs at the provider's, once its newest checkpoint is late enough; and the step of that."""
    while True:
        for job in api.jobs(active=True).items:
            step = job.checkpoint.step if job.checkpoint is not None else None
            if job.backend == PLACE and job.phase == "running" and step is not None and step >= after:
                return job, step
        time.sleep(LOOK_SECONDS)


def say(text: str) -> None:
    """A line of its own, also where the terminal shows a line that is redrawn."""
    begin = "\r\033[K" if sys.stderr.isatty() else ""
    sys.stderr.write(f"{begin}{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
