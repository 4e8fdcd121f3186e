"""The store channel's side of the control plane: see `crucible.wire.documents.mailbox` for what lies where."""

from crucible.control.storelink.invitations import Invitations, store_folder
from crucible.control.storelink.mailboxes import Mailboxes
from crucible.control.storelink.storelink import StoreLink

__all__ = ["Invitations", "Mailboxes", "StoreLink", "store_folder"]
