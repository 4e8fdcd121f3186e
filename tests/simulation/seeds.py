"""Seeds that once broke something, with what it was. They are run in every test run."""

from __future__ import annotations

BAD: dict[int, str] = {
    2: "a bill was read from a list that forgets what ended an hour ago, while the laptop slept",
    1481: "what was pruned under a clock set back was never removed",
    1596: "a list that was long on its way was taken for a new one, and a machine for gone",
    526: "the simulated successor of a runner that was fenced before its program began started that program",
    1423: "a clock set forward while a server stood still in a round looked like silence, and an attempt was replaced",
    2814: "the same, of another server",
    8213: "bytes sent twice arrived a second time after they had been pruned and removed, and stayed for ever",
    8639: "a clock set between two lists made them look far apart, and a new machine that neither showed was gone",
    41: "bytes on their way when they were pruned stayed for ever where the store was down when they could go",
    6887: "a refusal, held by a server that stood still, was believed after another server had sent the call again",
    91370044: "a dead server's call was on its way when the next server's was refused: gone, and yet it was made",
    34: "the same, where the first call's answer was lost and a list did not show its machine yet",
    16: "a host that ended before its first contact was never started again",
    837603126: "a provider whose clock is hours behind reported a start before the order: its machine was over at once",
}
