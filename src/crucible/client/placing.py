"""Where a job should run, as people write it: `rehearsal,local`, `spot`, `on-demand`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crucible.client.api import Api
from crucible.client.payload.near import nearest
from crucible.client.placeviews import BackendPage
from crucible.core.errors import BadInput, UnknownName
from crucible.core.offers import Market

LISTED = "`crucible backends` lists those of the server, and what connects others."


def read_names(said: Iterable[str]) -> tuple[str, ...]:
    """Names from texts that may each list several with commas; each once, in the order they came."""
    names = (name.strip() for text in said for name in text.split(","))
    return tuple(dict.fromkeys(name for name in names if name))


def read_places(
    backend: str | None, fallback: Iterable[str], called: str = "--backend"
) -> tuple[str | None, tuple[str, ...]]:
    """The first place, and those to go to after it. `called` is where the first one was said."""
    names = read_names(() if backend is None else (backend,))
    if backend is not None and not names:
        raise BadInput(f"{called} names no place.", fix="`crucible backends` lists them.", field="backend")
    first = names[0] if names else None
    return first, tuple(name for name in read_names((*names[1:], *fallback)) if name != first)


def check_places(api: Api, names: Sequence[str]) -> None:
    """Raise UnknownName for a place that the server does not have: before anything is sent."""
    page = api.places.page() if names else BackendPage()
    known = [backend.name for backend in page.items]
    for name in names:
        if name not in known:
            why = next((other.why for other in page.others if other.name == name), "")
            raise UnknownName("backend", name, known, fix=why or ("" if nearest(name, known) else LISTED))


def any_simulated(api: Api, names: Iterable[str | None]) -> bool:
    """Whether one of these places is simulated."""
    wanted = frozenset(names) - {None}
    return bool(wanted) and any(place.is_simulated and place.name in wanted for place in api.places.backends())


def read_market(text: str | None, *, spot: bool = False) -> Market | None:
    """`spot`, `on-demand` or `reserved`; `spot` is the flag that says the same shorter."""
    market = None if text is None else _market(text)
    if spot and market not in (None, Market.SPOT):
        raise BadInput(f"--spot and --market {text} contradict each other.", fix="Give one of them.")
    return Market.SPOT if spot else market


def _market(text: str) -> Market:
    try:
        return Market(text.strip().lower().replace("-", "_"))
    except ValueError:
        raise UnknownName("market", text, [market.value for market in Market]) from None
