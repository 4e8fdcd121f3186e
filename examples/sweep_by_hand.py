"""Try a few learning rates at once and keep the best: the Python client in one page.

    python examples/sweep_by_hand.py

Each learning rate is a separate job. The jobs run in parallel if there are free slots; `crucible jobs` lists them.
"""

import asyncio

from crucible import MLPlatform, Requirements

RATES = (0.01, 0.1, 0.3)


def fit(rate, steps=50):
    """Minimise (x - 3)² by gradient descent and return the remaining error."""
    x = 0.0
    for step in range(1, steps + 1):
        x -= rate * 2 * (x - 3)
        if step % 10 == 0:
            print(f"step {step}/{steps} loss {(x - 3) ** 2:.6f}", flush=True)
    return abs(x - 3)


async def main():
    async with MLPlatform() as platform:
        small = Requirements(cpus=0.5, memory_gb=0.25, time_limit_hours=0.1)
        jobs = [
            platform.submit(function=fit, args=[rate], requirements=small, name=f"rate {rate}", tags=["sweep"])
            for rate in RATES
        ]
        results = await asyncio.gather(*(job.result() for job in jobs))
    errors = {rate: result.value for rate, result in zip(RATES, results, strict=True)}
    for rate, error in errors.items():
        print(f"rate {rate}: error {error:.6f}")
    best = min(errors, key=errors.get)
    print(f"best: rate {best}, error {errors[best]:.2e}")


if __name__ == "__main__":
    asyncio.run(main())
