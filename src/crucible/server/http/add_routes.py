"""The routes of routers, put into an application."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI


def add_routes(app: FastAPI, *routers: APIRouter) -> None:
    """As they are. `include_router` works each of them out once more, in every application at its first request, and
    matches every request twice; what it could add, the routers have themselves."""
    app.router.routes.extend(route for router in routers for route in router.routes)
