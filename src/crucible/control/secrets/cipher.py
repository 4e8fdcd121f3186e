"""Values as they lie in the database: each is sealed together with the project and the name it belongs to."""

from __future__ import annotations

import json
from collections.abc import Sequence

from crucible.control.secrets.keyring import Key
from crucible.core.errors import Trouble
from crucible.core.people.project_secrets import is_secret_name
from crucible.core.secret import Secret


class Cipher:
    """Encrypts with the first key, and decrypts with any."""

    def __init__(self, keys: Sequence[Key]) -> None:
        from cryptography.fernet import Fernet, MultiFernet

        self._fernet = MultiFernet([Fernet(key.text) for key in keys])

    def seal(self, project: str, name: str, value: Secret) -> str:
        content = json.dumps([project, name, value.reveal()]).encode()
        return self._fernet.encrypt(content).decode()

    def unseal(self, project: str, name: str, ciphertext: str) -> Secret:
        """Raises Trouble for one that was sealed with a key we do not have, or as another secret."""
        from cryptography.fernet import InvalidToken

        try:
            found = json.loads(self._fernet.decrypt(ciphertext.encode()))
        except InvalidToken:
            raise _unreadable(project, name, "It was encrypted with a key that is not in secrets.keys.") from None
        if found[:2] != [project, name]:
            raise _unreadable(project, name, "Its row holds what belongs to another secret.")
        return Secret(found[2])


def _unreadable(project: str, name: str, why: str) -> Trouble:
    again = f"secrets set {name}" if is_secret_name(name) else f"notifications rotate {name.rpartition(':')[2]}"
    return Trouble(
        f"The secret {name!r} of the project {project!r} cannot be decrypted.",
        why=why,
        fix=f"Put back the file secrets.keys that belongs to this database, or set it again: "
        f"crucible {again} --project {project}",
    )
