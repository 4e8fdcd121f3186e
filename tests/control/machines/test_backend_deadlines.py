"""The deadlines of a backend's methods are those that its author reads."""

from __future__ import annotations

import re
from pathlib import Path

from crucible.control.connections.disconnect import CLEAN_DEADLINE
from crucible.control.connections.sync import MAKE_DEADLINE
from crucible.control.machines.janitor import LIST_DEADLINE
from crucible.control.machines.ledger import METER_DEADLINE
from crucible.control.machines.poller import POLL_DEADLINE
from crucible.control.reconcile.outbox import CALL_DEADLINE
from crucible.control.resources.backends import CHECK_DEADLINE
from crucible.control.runtime.background import LEAVE_DEADLINE
from crucible.control.scheduling.offers import OFFERS_DEADLINE

PAGE = Path(__file__).parents[3] / "docs/backends.md"


def test_the_page_has_the_deadlines() -> None:
    text = PAGE.read_text("utf-8")
    section = text[text.index("### Deadlines") : text.index("### Outcomes of a launch")]
    rows = re.findall(r"^\| (.+) \| ([0-9.]+) \|$", section, re.MULTILINE)
    stated = {name.strip("`"): float(seconds) for names, seconds in rows for name in names.split(", ")}
    assert stated == {
        "launch": CALL_DEADLINE,
        "find": CALL_DEADLINE,
        "terminate": CALL_DEADLINE,
        "withdraw": CALL_DEADLINE,
        "owned": LIST_DEADLINE,
        "metered": METER_DEADLINE,
        "offers": OFFERS_DEADLINE,
        "poll": POLL_DEADLINE,
        "check": CHECK_DEADLINE,
        "clean_up": CLEAN_DEADLINE,
        "the constructor": MAKE_DEADLINE,
        "leave": LEAVE_DEADLINE,
    }
