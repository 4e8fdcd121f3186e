"""The control plane's end of the store channel; `crucible.wire.documents.mailbox` has the layout."""

from crucible.control.storelink.invitations import Invitations, store_folder
from crucible.control.storelink.mailboxes import Mailboxes
from crucible.control.storelink.storelink import StoreLink

__all__ = ["Invitations", "Mailboxes", "StoreLink", "store_folder"]
