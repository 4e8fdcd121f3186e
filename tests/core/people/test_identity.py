from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.core.errors import BadInput, Forbidden
from crucible.core.people.identity import (
    DEFAULT_PROJECT,
    EVERY_PERMISSION,
    NOBODY,
    OWNER,
    Identity,
    LoginMethod,
    Permission,
    Role,
    validate_email,
    validate_project_name,
    validate_user_name,
)

PROJECTS = ("alpha", "beta", DEFAULT_PROJECT)
MEL = Identity("usr-1", "mel", LoginMethod.TOKEN, roles={"alpha": Role.MEMBER, "beta": Role.VIEWER})

permissions = st.sampled_from(Permission)
projects = st.sampled_from((*PROJECTS, None))
identities = st.builds(
    Identity,
    user=st.just("usr-1"),
    name=st.just("mel"),
    via=st.sampled_from(LoginMethod),
    admin=st.booleans(),
    roles=st.dictionaries(st.sampled_from(PROJECTS), st.sampled_from(Role)),
    scopes=st.frozensets(permissions),
    project=st.none() | st.sampled_from(PROJECTS),
    job=st.none() | st.just("job-1"),
)


@pytest.mark.parametrize(
    ("role", "may"),
    [
        (Role.VIEWER, {Permission.READ}),
        (Role.MEMBER, {Permission.READ, Permission.WRITE}),
        (Role.ADMIN, {Permission.READ, Permission.WRITE, Permission.MANAGE}),
    ],
)
def test_what_a_role_may_do_in_its_project_and_nowhere_else(role: Role, may: set[Permission]) -> None:
    who = Identity("usr-1", "mel", LoginMethod.SESSION, roles={"alpha": role})
    assert {p for p in Permission if who.may(p, "alpha")} == may
    assert not any(who.may(p, project) for p in Permission for project in ("beta", None))


def test_the_owner_may_everything_and_nobody_nothing() -> None:
    assert all(OWNER.may(p, project) for p in Permission for project in (*PROJECTS, None))
    assert not any(NOBODY.may(p, project) for p in Permission for project in (*PROJECTS, None))
    assert (OWNER.projects(Permission.READ), NOBODY.projects(Permission.READ)) == (None, frozenset())


@given(identities, permissions, projects)
def test_nothing_narrows_to_more(who: Identity, permission: Permission, project: str | None) -> None:
    """What a narrowed token may, the whole user may too."""
    whole = replace(who, scopes=EVERY_PERMISSION, project=None, job=None)
    assert not who.may(permission, project) or whole.may(permission, project)


@given(identities, permissions, projects)
def test_need_raises_exactly_where_may_says_no(who: Identity, permission: Permission, project: str | None) -> None:
    if who.may(permission, project):
        who.require(permission, project)
        return
    with pytest.raises(Forbidden) as caught:
        who.require(permission, project)
    assert caught.value.http_status == 403
    assert caught.value.fix


def refused(who: Identity, permission: Permission, project: str | None) -> Forbidden:
    with pytest.raises(Forbidden) as caught:
        who.require(permission, project)
    return caught.value


def test_a_refusal_names_the_token_only_where_another_one_would_do() -> None:
    read = replace(MEL, scopes=frozenset({Permission.READ}))
    assert "tokens create" in refused(read, Permission.WRITE, "alpha").fix
    assert "tokens create" in refused(replace(OWNER, project="alpha"), Permission.OPERATE, None).fix
    for permission, project in ((Permission.OPERATE, None), (Permission.WRITE, "beta"), (Permission.MANAGE, "alpha")):
        assert "tokens create" not in refused(read, permission, project).fix


def test_a_refusal_says_what_an_administrator_would_type() -> None:
    assert "crucible projects grant beta mel member" in refused(MEL, Permission.WRITE, "beta").fix
    assert "crucible projects grant default mel viewer" in refused(MEL, Permission.READ, DEFAULT_PROJECT).fix
    whole = refused(MEL, Permission.OPERATE, None)
    assert (whole.what, whole.why) == ("You may not operate this server.", "mel is not an administrator.")


def test_a_share_link_does_not_say_who_made_it() -> None:
    shared = replace(MEL, via=LoginMethod.SHARE, job="job-1", project="alpha", scopes=frozenset({Permission.READ}))
    for permission, project in ((Permission.OPERATE, None), (Permission.WRITE, "beta"), (Permission.MANAGE, "alpha")):
        refusal = refused(shared, permission, project)
        assert "mel" not in str(refusal)
        assert "tokens create" not in refusal.fix, "who has a link alone can make none"


@given(identities, permissions)
def test_the_projects_listed_are_those_where_he_may(who: Identity, permission: Permission) -> None:
    listed = who.projects(permission)
    for project in PROJECTS:
        assert who.may(permission, project) == (listed is None or project in listed)


def test_a_token_held_to_a_project_reaches_nothing_else() -> None:
    held = replace(OWNER, project="alpha")
    assert held.may(Permission.WRITE, "alpha")
    assert not held.may(Permission.READ, "beta")
    assert not held.may(Permission.OPERATE)
    assert held.projects(Permission.READ) == {"alpha"}


@pytest.mark.parametrize(
    ("who", "project"),
    [
        (OWNER, DEFAULT_PROJECT),
        (MEL, "alpha"),
        (replace(OWNER, project="beta"), "beta"),
        (replace(MEL, roles={"alpha": Role.MEMBER, DEFAULT_PROJECT: Role.MEMBER}), DEFAULT_PROJECT),
    ],
)
def test_where_jobs_go_when_nobody_says(who: Identity, project: str) -> None:
    assert who.default_project == project


def test_whoever_has_several_projects_says_which() -> None:
    with pytest.raises(BadInput) as caught:
        _ = replace(MEL, roles={"beta": Role.ADMIN, "alpha": Role.MEMBER}).default_project
    assert "'alpha' and 'beta'" in caught.value.why
    assert caught.value.fix == "Choose one: --project alpha, or the field `project`."
    assert DEFAULT_PROJECT not in str(caught.value)


def test_of_many_projects_a_few_are_named() -> None:
    with pytest.raises(BadInput) as caught:
        _ = replace(MEL, roles={f"p{n}": Role.MEMBER for n in range(9)}).default_project
    assert "'p0', 'p1', 'p2', 'p3', 'p4' and 4 more" in caught.value.why


@pytest.mark.parametrize(
    ("who", "why", "fix"),
    [
        (
            replace(MEL, roles={"beta": Role.VIEWER}),
            "mel may only view 'beta'.",
            "Ask an admin of 'beta' to make you a member; `crucible projects members beta` lists them.",
        ),
        (
            replace(MEL, roles={"beta": Role.VIEWER, "alpha": Role.VIEWER}),
            "mel may only view 'alpha' and 'beta'.",
            "Ask an admin of 'alpha' or 'beta' to make you a member; `crucible projects members alpha` lists them.",
        ),
        (replace(MEL, roles={}), "mel is in no project.", "Ask an administrator to make you a member of one."),
        (
            replace(MEL, scopes=frozenset({Permission.READ})),
            "The token in use does not have this permission.",
            "Use a token with more scopes: `crucible tokens create --help`.",
        ),
    ],
)
def test_whoever_may_submit_nowhere_is_told_what_he_can_do(who: Identity, why: str, fix: str) -> None:
    with pytest.raises(Forbidden) as caught:
        _ = who.default_project
    assert (caught.value.why, caught.value.fix) == (why, fix)
    assert DEFAULT_PROJECT not in str(caught.value)


@given(identities)
def test_where_jobs_go_is_a_project_that_he_may_write_in(who: Identity) -> None:
    try:
        project = who.default_project
    except (BadInput, Forbidden):
        assert len(who.projects(Permission.WRITE) or ()) != 1
    else:
        assert who.may(Permission.WRITE, project) or project == who.project


@pytest.mark.parametrize("name", ["alpha", "a", "0-9_z", "x" * 63])
def test_names_of_projects(name: str) -> None:
    assert validate_project_name(name) == name


@pytest.mark.parametrize("name", ["", "Alpha", "-a", "a b", "a/b", "..", "x" * 64, "a\n", "é", "a\x00"])
def test_names_that_no_project_can_have(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        validate_project_name(name)
    assert caught.value.fix


@pytest.mark.parametrize("name", ["ada", "ada@example.org", "a.b+c_d-e", "1"])
def test_names_of_users(name: str) -> None:
    assert validate_user_name(name) == name


@pytest.mark.parametrize("name", ["", "Ada", "@a", "a b", "a/b", "x" * 101, "a\n", "ä"])
def test_names_that_no_user_can_have(name: str) -> None:
    with pytest.raises(BadInput):
        validate_user_name(name)


@pytest.mark.parametrize("address", ["ada@example.org", "Ada.L+x@Sub.Example.ORG"])
def test_addresses(address: str) -> None:
    assert validate_email(address) == address.lower()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "ada",
        "@example.org",
        "ada@",
        "ada@localhost",
        "a b@example.org",
        "ada@example.org\n",
        "a@b@example.org",
        "\N{KELVIN SIGN}im@example.org",
        "ädä@example.org",
        "x" * 65 + "@example.org",
        "<ada@example.org>",
    ],
)
def test_texts_that_are_no_address(address: str) -> None:
    with pytest.raises(BadInput) as caught:
        validate_email(address)
    assert caught.value.fix
