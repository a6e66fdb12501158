"""Damaged files and odd arguments end in success or one sentence: some cases of `make fuzz`."""

import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGN = Path(__file__).with_name("campaign.py")


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
def test_no_case_ends_in_anything_but_success_or_a_sentence():
    command = [sys.executable, CAMPAIGN, "300", "--seed", "1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "300 cases" in ended.stdout
