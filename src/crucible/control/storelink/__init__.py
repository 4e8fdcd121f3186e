"""The store channel's side of the control plane: see `crucible.wire.documents.mailbox` for what lies where."""

from crucible.control.storelink.invitations import Invitations, folder_of
from crucible.control.storelink.mailboxes import Postroom
from crucible.control.storelink.storelink import StoreLink

__all__ = ["Invitations", "Postroom", "StoreLink", "folder_of"]
