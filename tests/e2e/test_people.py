"""Several people on one server: the owner lets them in, and each gets his own and no more."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx2
import pytest
from tests.e2e.terminal import Done, Terminal


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A server whose users trust each other, with a project `vision` and a member `ada`."""
    with Terminal(tmp_path_factory.mktemp("people"), CRUCIBLE_SHARED_COMPUTER="true") as terminal:
        terminal.crucible.start()
        terminal.ok("projects", "add", "vision", "--about", "pictures")
        terminal.ok("users", "add", "ada", "--password-stdin", input="a long sentence nobody guesses\n")
        terminal.ok("projects", "grant", "vision", "ada", "member")
        yield terminal


@pytest.fixture(scope="module")
def token(terminal: Terminal) -> str:
    return terminal.ok("tokens", "create", "laptop", "--user", "ada", "--scope", "read", "--scope", "write").strip()


def as_ada(terminal: Terminal, token: str, *words: str) -> Done:
    """What ada gets: she has a token and the server's address, and no state folder of her own."""
    url = json.loads(terminal.home.joinpath("server.json").read_text())["url"]
    return terminal.run(*words, env={"CRUCIBLE_SERVER": url, "CRUCIBLE_TOKEN": token})


def test_the_owner_sees_who_there_is(terminal: Terminal) -> None:
    (ada,) = [u for u in json.loads(terminal.ok("users", "--json"))["items"] if u["name"] == "ada"]
    assert (ada["projects"], ada["admin"], ada["password"]) == ({"vision": "member"}, False, True)
    assert "vision" in terminal.ok("projects")
    assert "member" in terminal.ok("projects", "members", "vision")
    assert terminal.ok("whoami", "--quiet").strip() == "owner"


def test_a_member_runs_a_job_in_her_project(terminal: Terminal, token: str) -> None:
    assert as_ada(terminal, token, "whoami", "--quiet").stdout.strip() == "ada"
    done = as_ada(terminal, token, "run", "--code", "print('hello from ada')")
    assert done.returncode == 0, done.stderr
    assert "hello from ada" in done.stdout
    job = json.loads(as_ada(terminal, token, "status", "last", "--json").stdout)
    assert (job["project"], job["user"]) == ("vision", "ada")


def test_the_owners_jobs_are_not_hers_to_see(terminal: Terminal, token: str) -> None:
    terminal.ok("run", "--code", "print('mine')")
    mine = json.loads(terminal.ok("status", "last", "--json"))["id"]
    done = as_ada(terminal, token, "status", mine)
    assert done.returncode == 3
    assert mine not in as_ada(terminal, token, "jobs").stdout


def test_who_belongs_to_no_project_is_told_how_that_changes(terminal: Terminal, token: str) -> None:
    terminal.ok("users", "add", "lone")
    made = terminal.run("tokens", "create", "forever", "--user", "lone", "--days", "0")
    assert "Valid until it is revoked" in made.stderr
    done = as_ada(terminal, made.stdout.strip(), "whoami")
    assert (done.returncode, "crucible projects grant PROJECT lone member" in done.stderr) == (0, True), done.stderr
    assert "PROJECT" not in done.stdout, "no table without rows"
    assert "vision" in as_ada(terminal, token, "whoami").stdout


def test_what_she_may_not_do_is_said(terminal: Terminal, token: str) -> None:
    for words in (("users",), ("prune", "--yes"), ("tokens", "--all"), ("projects", "grant", "vision", "ada", "admin")):
        done = as_ada(terminal, token, *words)
        assert (done.returncode, "You may not" in done.stderr) == (4, True), (words, done.stderr)


def test_programs_are_told_who_left_a_project(terminal: Terminal) -> None:
    terminal.ok("projects", "add", "brief")
    terminal.ok("projects", "grant", "brief", "ada", "viewer")
    told = json.loads(terminal.ok("projects", "remove", "brief", "ada", "--yes", "--json"))
    assert told == {"project": "brief", "name": "ada", "removed": True}
    assert json.loads(terminal.ok("projects", "members", "brief", "--json"))["items"] == []


def test_a_projects_admin_is_told_which_part_of_the_record_is_his(terminal: Terminal) -> None:
    terminal.ok("users", "add", "boss")
    terminal.ok("projects", "grant", "vision", "boss", "admin")
    token = terminal.ok("tokens", "create", "desk", "--user", "boss", "--scope", "read", "--scope", "manage").strip()
    done = as_ada(terminal, token, "audit")
    assert (done.returncode, "crucible audit --project vision" in done.stderr) == (4, True), done.stderr
    assert as_ada(terminal, token, "audit", "--project", "vision").returncode == 0


def test_a_share_link_shows_one_job(terminal: Terminal) -> None:
    terminal.ok("run", "--code", "print('look at this')", "--name", "shared")
    shared = json.loads(terminal.ok("share", "shared", "--hours", "1", "--json"))
    assert f"it shows {shared['job']} and nothing else" in as_ada(terminal, shared["token"], "whoami").stdout
    seen = as_ada(terminal, shared["token"], "logs", shared["job"])
    assert "look at this" in seen.stdout
    assert as_ada(terminal, shared["token"], "cancel", shared["job"], "--yes").returncode == 4


def test_a_revoked_token_is_good_for_nothing(terminal: Terminal) -> None:
    made = json.loads(terminal.ok("tokens", "create", "gone", "--user", "ada", "--json"))
    terminal.ok("tokens", "revoke", made["id"], "--yes")
    assert as_ada(terminal, made["token"], "jobs").returncode == 4


def test_logging_in_makes_a_server_the_one_in_use(terminal: Terminal, token: str) -> None:
    url = json.loads(terminal.home.joinpath("server.json").read_text())["url"]
    config, elsewhere = terminal.folder / "config", terminal.folder / "elsewhere"
    env = {"XDG_CONFIG_HOME": str(config), "CRUCIBLE_HOME": str(elsewhere)}
    terminal.ok("login", url, "--token-stdin", env=env, input=f"{token}\n")
    kept = elsewhere / "logins.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert terminal.ok("whoami", "--quiet", env=env).strip() == "ada"
    terminal.ok("logout", env=env)
    assert token not in kept.read_text()
    assert [path.name for path in elsewhere.iterdir()] == ["logins.json"], "no server of her own was started"
    assert not config.exists(), "nothing of hers is anywhere else"


def test_who_is_let_in_no_more_can_log_out(terminal: Terminal) -> None:
    url = json.loads(terminal.home.joinpath("server.json").read_text())["url"]
    refused = terminal.folder / "refused"
    env = {"CRUCIBLE_HOME": str(refused)}
    made = json.loads(terminal.ok("tokens", "create", "soon-gone", "--user", "ada", "--json"))
    terminal.ok("login", url, "--token-stdin", env=env, input=f"{made['token']}\n")
    terminal.ok("tokens", "revoke", made["id"], "--yes")
    done = terminal.run("jobs", env=env)
    assert (done.returncode, "crucible login URL" in done.stderr) == (4, True)
    assert "Logged out" in terminal.run("logout", env=env).stderr
    assert made["token"] not in (refused / "logins.json").read_text()


def test_her_own_password_needs_the_old_one_and_the_owner_does_not(terminal: Terminal) -> None:
    old, new = "a sentence of grace herself", "another sentence of hers"
    terminal.ok("users", "add", "grace", "--password-stdin", input=f"{old}\n")
    url = json.loads(terminal.home.joinpath("server.json").read_text())["url"]
    with httpx2.Client(base_url=url) as http:
        session = http.post("/api/v1/login", json={"name": "grace", "password": old}).json()["token"]
    for lines in (f"wrong\n{new}\n", f"{new}\n{new}\n"):
        env = {"CRUCIBLE_SERVER": url, "CRUCIBLE_TOKEN": session}
        done = terminal.run("users", "password", "grace", "--password-stdin", env=env, input=lines)
        assert (done.returncode, "old password is missing or wrong" in done.stderr) == (4, True), done.stderr
    terminal.ok("users", "password", "grace", "--password-stdin", env=env, input=f"{old}\n{new}\n")
    assert as_ada(terminal, session, "whoami").returncode == 4, "her sessions have ended"
    terminal.ok("users", "password", "grace", "--password-stdin", input=f"{old}\n")


def test_an_address_is_set_shown_and_taken_away(terminal: Terminal) -> None:
    terminal.ok("users", "add", "kim", "--email", "kim@example.org")
    assert "provider (kim@example.org)" in terminal.ok("users")
    assert terminal.json("users", "email", "kim", "Kim@example.net")["email"] == "kim@example.net"
    assert terminal.json("users", "email", "kim", "")["email"] is None
    done = terminal.run("users", "email", "kim", "kim")
    assert (done.returncode, "is not a valid e-mail address" in done.stderr) == (2, True)


@pytest.mark.usefixtures("token")
def test_the_record_tells_it(terminal: Terminal) -> None:
    deeds = [item["action"] for item in json.loads(terminal.ok("audit", "--json"))["items"]]
    assert {"user.create", "project.create", "member.set", "token.create"} <= set(deeds)


def test_a_login_link_is_printed(terminal: Terminal) -> None:
    assert "/login?code=crt_" in terminal.ok("login", "--link")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("projects", "grant", "vision", "ada", "boss"), 2, "viewer"),
        (("projects", "grant", "nothing", "ada", "member"), 3, "no project"),
        (("users", "add", "Bad Name"), 2, "is not a valid user name"),
        (("users", "add", "ada"), 5, "already"),
        (("tokens", "create", "x", "--scope", "everything"), 2, "read"),
        (("login",), 2, "No server is named"),
        (("login", "http://example.org", "--token-stdin"), 7, "not encrypted"),
        (("run", "--code", "1", "--project", "nothing"), 3, "no project"),
        (("run", "--code", "1", "--project", "No Such"), 2, "--project"),
    ],
)
def test_what_is_wrong_is_said(terminal: Terminal, words: tuple[str, ...], code: int, said: str) -> None:
    done = terminal.run(*words, input="\n")
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
