"""Commands on a database without a server: back it up, restore it, confirm the restore."""

from __future__ import annotations

import argparse
import enum
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from crucible.control.jobs.views import iso
from crucible.control.upkeep import restore_hold
from crucible.control.upkeep.backup import BackupSource, write_backup
from crucible.control.upkeep.restore import confirm_offline, restore

__all__ = ["BackupSource", "Command", "OfflineCommand", "parse", "run"]


class Command(enum.StrEnum):
    BACKUP = "backup"
    RESTORE = "restore"
    CONFIRM = "confirm"


@dataclass(frozen=True)
class OfflineCommand:
    """`force` overwrites an older backup, or restores another deployment's. `in_use`: even under a running server."""

    command: Command
    file: Path = Path()
    force: bool = False
    in_use: bool = False

    @property
    def exclusive(self) -> bool:
        """Whether no other process may use the state folder meanwhile."""
        return self.command is not Command.BACKUP


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> OfflineCommand:
    commands = parser.add_subparsers(dest="command", required=True)
    backup = commands.add_parser("backup", help="write a backup; the server may be running")
    backup.add_argument("file", type=Path)
    backup.add_argument("--overwrite", dest="force", action="store_true")
    back = commands.add_parser("restore", help="replace the database with a backup; no server may be running")
    back.add_argument("file", type=Path)
    back.add_argument(
        "--force", action="store_true", help="restore another deployment's backup too, but only its history"
    )
    why = "PostgreSQL: restore although a process seems to use the database; only if you are certain that none does"
    back.add_argument("--in-use", action="store_true", help=why)
    commands.add_parser("confirm", help="after a restore, allow machines to be launched and ended again")
    values = vars(parser.parse_args(arguments))
    flags = (values.get(name, False) for name in ("force", "in_use"))
    return OfflineCommand(Command(values["command"]), values.get("file", Path()), *flags)


def run(wanted: OfflineCommand, source: BackupSource, now: float) -> dict[str, object]:
    match wanted.command:
        case Command.BACKUP:
            return dict(asdict(write_backup(source, wanted.file, now, overwrite=wanted.force)))
        case Command.RESTORE:
            done = restore(source, wanted.file, now, force=wanted.force, in_use=wanted.in_use)
            return {
                "restored": str(source.database) if isinstance(source.database, Path) else "PostgreSQL",
                "backup_at": iso(done.manifest.created_at),
                "kept": done.kept,
                "why": restore_hold.WHY,
                "fix": restore_hold.FIX,
            }
        case Command.CONFIRM:
            return confirm_offline(source, now).view.as_json()
