"""The store channel's side of the control plane: see `crucible.wire.mailbox` for what lies where."""

from crucible.control.storelink.invitations import Invitations, folder_of
from crucible.control.storelink.link import StoreLink
from crucible.control.storelink.postroom import Postroom

__all__ = ["Invitations", "Postroom", "StoreLink", "folder_of"]
