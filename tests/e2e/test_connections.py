"""Connect a backend to a running server, use it, and disconnect it, by the real command."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.terminal import Terminal
from tests.harness import until


def test_a_backend_is_connected_used_and_disconnected_without_a_restart(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.crucible.start()
        others = {each["name"]: each["why"] for each in terminal.json("backends")["others"]}
        assert others["rehearsal"].endswith("Connect it: crucible backends connect rehearsal.")
        cloud = tmp_path / "cloud"
        done = terminal.run("backends", "connect", "rehearsal", "--state", str(cloud), "--yes")
        assert done.returncode == 0, done.stderr
        assert "the simulated cloud answers" in done.stderr
        assert "/h" in done.stderr
        out = terminal.ok("run", "--code", "print(6 * 7)", "--backend", "rehearsal", "--yes")
        assert out.splitlines()[-1] == "42"
        shown = terminal.json("backends", "show", "rehearsal")
        assert (shown["state"], {each["name"]: each["value"] for each in shown["settings"]}["state"]) == (
            "connected",
            str(cloud),
        )
        terminal.crucible.stop()
        terminal.crucible.start()
        assert terminal.json("backends", "show", "rehearsal")["state"] == "connected"
        terminal.ok("backends", "disconnect", "rehearsal", "--yes")
        until(lambda: terminal.json("backends", "show", "rehearsal")["state"] == "not connected", 240, "its final bill")
        assert [item["name"] for item in terminal.json("backends")["items"]] == ["local"]
        done = terminal.run("run", "--code", "print(1)", "--backend", "rehearsal", "--yes")
        assert done.returncode == 2
        assert "crucible backends connect rehearsal" in done.stderr


def test_a_restored_backup_brings_the_connections_back(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.crucible.start()
        backup = tmp_path / "backup"
        terminal.ok("backends", "connect", "rehearsal", "--state", str(tmp_path / "cloud"), "--yes")
        terminal.ok("db", "backup", str(backup))
        terminal.ok("backends", "disconnect", "rehearsal", "--yes")
        terminal.crucible.stop()
        terminal.ok("db", "restore", str(backup), "--force", "--yes")
        shown = terminal.json("backends", "show", "rehearsal")
        values = {each["name"]: each["value"] for each in shown["settings"]}
        assert (shown["state"], values["state"]) == ("connected", str(tmp_path / "cloud"))


def test_what_the_configuration_connects_is_not_disconnected(tmp_path: Path) -> None:
    with Terminal(tmp_path, CRUCIBLE_BACKENDS="local,rehearsal") as terminal:
        done = terminal.run("backends", "disconnect", "rehearsal", "--yes")
        assert done.returncode == 5
        assert "comes from CRUCIBLE_BACKENDS" in done.stderr
        assert terminal.json("backends", "show", "rehearsal")["connected_by"] == "CRUCIBLE_BACKENDS"


def test_a_folders_file_connects_nothing(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        (terminal.folder / "crucible.toml").write_text('backends = ["rehearsal"]\n')
        assert [item["name"] for item in terminal.json("backends")["items"]] == ["local"]
        (terminal.folder / "crucible.toml").write_text('[backends.rehearsal]\nstate = "/tmp/x"\n')
        done = terminal.run("backends")
        assert done.returncode == 2
        assert "only your own configuration may have" in done.stderr


def test_the_users_file_connects_with_settings(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        config = terminal.home / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        cloud = tmp_path / "cloud"
        config.write_text(f'[backends]\nconnected = ["local", "rehearsal"]\n[backends.rehearsal]\nstate = "{cloud}"\n')
        shown = terminal.json("backends", "show", "rehearsal")
        (state,) = [each for each in shown["settings"] if each["name"] == "state"]
        assert (shown["state"], shown["connected_by"]) == ("connected", str(config))
        assert (state["value"], state["origin"]) == (str(cloud), f"[backends.rehearsal] in {config}")
        config.write_text("[backends.rehearsl]\n")
        terminal.ok("down")
        done = terminal.run("backends")
        assert done.returncode == 2
        assert "Did you mean 'rehearsal'" in done.stderr
