"""`python -m crucible.analysis train.py [arguments of the program]` prints the program's profile as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from crucible.analysis import profile_of
from crucible.core.errors import CrucibleError
from crucible.core.views.profiles import ProfileView


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(f"{__doc__}\n")
        return 0 if arguments else 2
    try:
        profile = profile_of(Path(arguments[0]), tuple(arguments[1:]))
    except CrucibleError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(ProfileView.from_profile(profile).as_json(), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
