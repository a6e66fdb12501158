"""The experiment "bars"."""

from small_experiments import check_report


def test_every_model_is_run_and_reported(ran):
    check_report(ran("bars"), "bars")


def test_bars_are_compared_with_what_they_were_made_of(ran):
    _, done, table = ran("bars")
    by_name = {row["what"]: row for row in table}
    assert by_name["BSC: noise variance"]["published"] == "1.00"
    for one in done:
        # 100 rows are fitted better than by the truth: half a nat for each of some 260 parameters.
        assert one.outcome.values["bound less that of the truth"] < 130 / 100
        assert len(one.outcome.arrays["bounds"]) == 4
        assert one.outcome.arrays["components"].shape == (4, 10, 25)  # after 0, 1, 2 and 4
        assert one.outcome.arrays["activation_probs"].shape == (5, 10)
