"""Write text.txt, the text that ships with this template: scenes from a harbour that never existed.

The same seed gives the same text on every Python, so anyone can make it again:

    python make_text.py text.txt
"""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

SEED = 20261115
SIZE = 80_000
"""Approximate number of characters: the text ends with a complete scene."""

WORDS = {
    "who": "the harbour master|the miller|the ferryman|the glass blower|the young clerk|the widow Marrow"
    "|the lamp keeper|the rope maker|old Tobin|the schoolmistress|the baker's daughter|the pilot",
    "speaker": "MILLER|FERRYMAN|CLERK|WIDOW|KEEPER|TOBIN|PILOT|BAKER",
    "thing": "lantern|rope|salt barrel|ledger|brass bell|kettle|net|letter|oar|copper coin|map|lock",
    "colour": "grey|green|pale|black|silver|amber|rust red|blue",
    "place": "the long pier|the mill|the salt store|the customs house|the north wall|the chapel steps"
    "|the lower market|the slipway|the lighthouse|the inn",
    "weather": "rain|fog|a hard wind|a thin frost|low cloud|clear cold light|thunder|slow warm air",
    "time": "at dawn|before noon|at the turn of the tide|after dark|on the third day|in the last hour"
    "|when the bell rang|all that winter",
    "sea": "tide|swell|current|surf|ebb",
    "move": "rose|fell|turned|waited|ran white|went quiet|came in fast",
    "did": "carried|mended|counted|hid|sold|lost|found|painted|weighed",
    "went": "walked to|looked out from|waited by|came back to|slept near|ran from",
    "feel": "without a word|with great care|as if nothing had happened|and laughed|in plain sight"
    "|for the second time|as their fathers had",
    "ship": "the Patience|the Second Wind|the Heron|the Good Measure|the Lantern Girl",
    "number": "two|three|four|seven|nine|twelve|twenty",
    "truth": "the sea keeps no ledger|a rope is only as good as its knot|fog has no owner"
    "|every lamp wants oil|salt remembers|no bell rings twice the same|a debt sleeps but does not die",
}

TOLD = """
{Time} {who} {did} the {colour} {thing} {feel}.
{Time} {who} {went} {place}, and {who} {went} {place}.
There was {weather} over {place}, and the {sea} {move}.
{Who} {did} {number} {thing}s and {went} {place}.
The {sea} {move}; the {sea} {move}; {who} said that {truth}.
{Ship} came in {time} with {number} hands and a {colour} {thing}.
Nobody saw {ship} leave, for there was {weather} {time}.
{Who} had a {thing}, and the {thing} was {colour}, and it had come from {ship}.
In {place} they say that {truth}.
{Weather} came {time}. {Who} {went} {place} {feel}.
""".strip().split("\n")

SPOKEN = """
Who {did} the {thing}? It was here {time}.
I {did} it myself, {feel}.
They say that {truth}, and I believe them.
Go to {place} and ask {who}.
{Ship} is {number} days late, and the {sea} has {move_done}.
Not {time}. There will be {weather}.
You {went} {place}, and you ask me about a {thing}?
{Number} {thing}s! {Who} will never pay for {number} {thing}s.
I have {number} of them, all {colour}.
Then we wait. {Truth}.
The {colour} one, or the {colour_two} one?
Ask me {time}, when the {sea} is kinder.
""".strip().split("\n")

WORDS["move_done"] = "risen|fallen|turned|gone quiet|run white"
WORDS["colour_two"] = WORDS["colour"]


class Writer:
    """Fills patterns with words; a capitalized name capitalizes the word."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - it writes a story, no secret

    def one_of(self, choices: list[str]) -> str:
        # Only random() is guaranteed to return the same values in every version of Python.
        return choices[int(self._random.random() * len(choices))]

    def fill(self, pattern: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda found: self._word(found[1]), pattern)

    def scene(self, number: int) -> str:
        told = " ".join(self.fill(self.one_of(TOLD)) for _ in range(2 + int(self._random.random() * 4)))
        spoken = "\n\n".join(self._speech() for _ in range(2 + int(self._random.random() * 5)))
        return f"SCENE {number}\n\n{told}\n\n{spoken}\n"

    def _speech(self) -> str:
        lines = [self.fill(self.one_of(SPOKEN)) for _ in range(1 + int(self._random.random() * 3))]
        return "\n".join([f"{self.one_of(WORDS['speaker'].split('|'))}:", *lines])

    def _word(self, name: str) -> str:
        word = self.one_of(WORDS[name.lower()].split("|"))
        return word[0].upper() + word[1:] if name[0].isupper() else word


def make_text(seed: int = SEED, size: int = SIZE) -> str:
    writer, length = Writer(seed), 0
    scenes: list[str] = []
    while length < size:
        scenes.append(writer.scene(len(scenes) + 1))
        length += len(scenes[-1]) + 1
    return "\n".join(scenes)


def main() -> None:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "text.txt")
    target.write_text(make_text(), encoding="utf-8", newline="\n")
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
