"""Run the property tests with fresh seeds until a test fails or the time is over: `make fuzz MINUTES=10`.

The first argument is the number of minutes. Other arguments go to pytest: a file, `-k NAME`, `-n 1`.
"""

import secrets
import subprocess
import sys
import time

import pytest


def fuzz(minutes: float, arguments: list[str]) -> int:
    """Run rounds of property tests, one seed per round, and return the exit code of the last round."""
    end, rounds = time.monotonic() + 60 * minutes, 0
    while rounds == 0 or time.monotonic() < end:
        seed, rounds = secrets.randbits(32), rounds + 1
        command = ["-m", "pytest", "-m", "hypothesis", "--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}"]
        print(f"round {rounds}: --hypothesis-seed={seed}", flush=True)
        done = subprocess.run([sys.executable, *command, "--tb=short", *arguments], capture_output=True, text=True)
        if done.returncode:
            print(done.stdout, done.stderr, sep="\n")
            found = done.returncode == pytest.ExitCode.TESTS_FAILED
            print("a find" if found else f"exit code {done.returncode}, no find", f"with --hypothesis-seed={seed}")
            if found:
                print("Keep the smallest example above, as @example(...) or as a test, and fix what it shows.")
            return done.returncode
    print(f"rounds without a find: {rounds}")
    return 0


if __name__ == "__main__":
    sys.exit(fuzz(float(sys.argv[1]), sys.argv[2:]))
