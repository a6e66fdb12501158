"""What all estimators do alike, in the manner of scikit-learn."""

import pickle

import numpy as np
import pytest
from estimator_problems import ESTIMATORS, fitted, make_data
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from evoem import BinarySparseCoding, NoisyOr, SpikeSlabCoding, SubspaceCoding


# No exemptions: NoisyOr is checked with a threshold, because the checks' data is not binary.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        NoisyOr(n_latents=3, max_iter=5, binarize=1.0),
        BinarySparseCoding(n_latents=3, max_iter=5),
        SpikeSlabCoding(n_latents=3, max_iter=5),
        SpikeSlabCoding(n_latents=3, max_iter=5, slab="full", crossover=True, mutation="sparse"),
        SubspaceCoding(n_latents=3, max_iter=5),
    ]
)
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_learnt_attributes_describe_the_run(estimator):
    seen = []
    model = fitted(estimator, callback=seen.append)
    assert model.n_iter_ == len(seen) == len(model.free_energies_) == 8
    assert model.free_energy_ == model.free_energies_[-1] == seen[-1].free_energy
    assert not model.converged_
    assert [info.iteration for info in seen] == list(range(1, 9))
    for name in ("seconds", "states_evaluated", "states_replaced"):
        np.testing.assert_array_equal(model.history_[name], [getattr(i, name) for i in seen])
    np.testing.assert_array_equal(model.components_, model.state_.params.components)
    assert (np.diff(model.free_energies_) > -1e-9).all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_scores_are_the_bounds_under_the_learnt_parameters(estimator):
    X = make_data(estimator)
    X = np.unique(X, axis=0)  # equal rows share what was found for the first of them
    model = fitted(estimator, X, n_states="all")
    after_one_more = clone(model).set_params(max_iter=9).fit(X)
    assert model.score(X) == pytest.approx(after_one_more.free_energy_, rel=1e-9)
    assert model.score(X) == pytest.approx(model.score_samples(X).mean())


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_reconstruction_fills_missing_values_better_than_the_mean(estimator):
    X = make_data(estimator, 400)
    model = fitted(estimator, X, max_iter=40, n_states=16)
    damaged = make_data(estimator, 100, seed=1)
    clean = damaged.copy()
    hidden = np.random.default_rng(2).random(damaged.shape) < 0.3
    damaged[hidden] = np.nan
    mean, std = model.reconstruct(damaged, return_std=True)
    error = np.square(mean - clean)[hidden].mean()
    assert error < 0.6 * np.square(X.mean(0) - clean)[hidden].mean()
    assert np.isfinite(mean).all()
    assert (std >= 0).all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_missing_values_may_be_nan_or_masked(estimator):
    X = make_data(estimator)
    hidden = np.random.default_rng(3).random(X.shape) < 0.2
    hidden[5] = True
    with_nan = fitted(estimator, np.where(hidden, np.nan, X))
    with_mask = fitted(estimator, np.ma.masked_array(X, hidden))
    np.testing.assert_array_equal(with_nan.components_, with_mask.components_)
    assert with_nan.free_energies_[-1] > with_nan.free_energies_[0]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_warm_start_on_the_same_data_is_a_run_that_never_stopped(estimator):
    X = make_data(estimator)
    whole = fitted(estimator, max_iter=10)
    part = fitted(estimator, max_iter=4, warm_start=True).set_params(max_iter=6).fit(X)
    np.testing.assert_array_equal(part.components_, whole.components_)
    np.testing.assert_array_equal(part.free_energies_, whole.free_energies_)
    assert part.n_iter_ == 10


def test_a_warm_start_on_new_data_begins_with_the_learnt_parameters():
    first = fitted(BinarySparseCoding, max_iter=30, n_states="all", warm_start=True)
    learnt, score = first.components_, first.score(make_data(BinarySparseCoding, 50, seed=5))
    first.set_params(max_iter=1).fit(make_data(BinarySparseCoding, 50, seed=5))
    assert first.free_energies_[0] == pytest.approx(score, rel=1e-9)
    assert not np.array_equal(first.components_, learnt)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_threads_and_pickling_change_nothing(estimator):
    X = make_data(estimator, 300)
    one, two = fitted(estimator, X, n_jobs=1), fitted(estimator, X, n_jobs=2)
    np.testing.assert_array_equal(one.components_, two.components_)
    again = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(again.transform(X), two.transform(X))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_single_precision_data_stays_single(estimator):
    X = make_data(estimator).astype(np.float32)
    model = fitted(estimator, X)
    assert model.transform(X).dtype == model.reconstruct(X).dtype == np.float32
    double = fitted(estimator, X.astype(np.float64))
    assert model.free_energy_ == pytest.approx(double.free_energy_, rel=1e-3)


def test_samples_repeat_with_the_seed():
    model = fitted(NoisyOr)
    X, states = model.sample(50)
    assert set(np.unique(X)) <= {0.0, 1.0}
    assert states.shape == (50, 4)
    np.testing.assert_array_equal(model.sample(50)[0], X)


def test_convergence_is_reported_and_its_absence_warned_about():
    X = make_data(BinarySparseCoding)
    assert fitted(BinarySparseCoding, X, tol=1e-2, max_iter=100).converged_
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        fitted(BinarySparseCoding, X, tol=1e-9, max_iter=2)


def test_verbose_writes_lines_to_standard_error(capfd):
    fitted(BinarySparseCoding, verbose=4)
    out, err = capfd.readouterr()
    assert out == ""
    assert [line.split(":")[0] for line in err.splitlines()] == ["iteration 4", "iteration 8"]


def test_it_works_in_a_pipeline_and_names_its_features():
    X = make_data(BinarySparseCoding)
    pipeline = make_pipeline(
        StandardScaler(), BinarySparseCoding(n_latents=2, max_iter=3, tol=0, random_state=0)
    )
    assert pipeline.fit_transform(X).shape == (80, 2)
    names = pipeline[-1].get_feature_names_out()
    assert list(names) == ["binarysparsecoding0", "binarysparsecoding1"]


def test_its_repr_shows_the_parameters_that_differ_from_their_defaults():
    assert repr(BinarySparseCoding()) == "BinarySparseCoding()"
    assert repr(NoisyOr(12, binarize=0.5, init="random")) == "NoisyOr(binarize=0.5, n_latents=12)"
    assert repr(SubspaceCoding(8, rank=4)) == "SubspaceCoding(rank=4)"


def test_all_but_the_number_of_latents_is_given_by_name():
    assert BinarySparseCoding(5).get_params()["n_latents"] == 5
    with pytest.raises(TypeError, match="positional"):
        BinarySparseCoding(5, 10)


def test_nothing_works_before_fit():
    for method in ("transform", "reconstruct", "score", "score_samples"):
        with pytest.raises(NotFittedError):
            getattr(BinarySparseCoding(), method)(np.ones((2, 2)))
    with pytest.raises(NotFittedError):
        BinarySparseCoding().sample()


GOOD = np.random.default_rng(0).normal(size=(20, 3))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_latents": 0}, "n_latents must be an integer at least 1; got 0."),
        ({"n_latents": -3}, "n_latents must be an integer at least 1; got -3."),
        ({"n_latents": "many"}, "n_latents must be an integer at least 1; got 'many'."),
        ({"n_latents": 2.5}, "n_latents must be an integer at least 1; got 2.5."),
        (
            {"n_latents": 3, "n_states": 9},
            r"n_states must be an integer between 1 and 8 \(2\*\*n_latents\); got 9.",
        ),
        ({"n_states": "some"}, "n_states must be an integer, None or 'all'; got 'some'."),
        (
            {"n_latents": 30, "n_states": "all"},
            "n_states='all' needs n_latents of at most 20; got 30.",
        ),
        (
            {"n_states": 4, "n_parents": 5},
            r"n_parents must be an integer between 1 and 4 \(n_states\); got 5.",
        ),
        (
            {"n_latents": 4, "n_children": 5},
            r"n_children must be an integer between 1 and 4 \(n_latents\); got 5.",
        ),
        ({"n_generations": 0}, "n_generations must be an integer at least 1; got 0."),
        ({"parents": "oldest"}, "parents must be one of 'fit', 'random', 'best'; got 'oldest'."),
        ({"mutation": 3}, "mutation must be one of 'uniform', 'sparse', 'guided'; got 3."),
        ({"crossover": "yes"}, "crossover must be True or False; got 'yes'."),
        (
            {"n_latents": 1, "crossover": True},
            "crossover=True needs n_latents of at least 2; got 1.",
        ),
        (
            {"n_states": 1, "crossover": True},
            "crossover=True needs n_states of at least 2; got 1.",
        ),
        ({"max_iter": 0}, "max_iter must be an integer at least 1; got 0."),
        ({"tol": -1.0}, "tol must be a number at least 0; got -1.0."),
        ({"batch_size": 0}, "batch_size must be an integer at least 1; got 0."),
        ({"n_jobs": 0}, "n_jobs must be an integer other than 0; got 0."),
        ({"n_jobs": "two"}, "n_jobs must be an integer other than 0; got 'two'."),
        ({"random_state": "one"}, "random_state must be None, an integer .*; got 'one'."),
        ({"random_state": -1}, "random_state must be None, an integer between 0 .*; got -1."),
        ({"callback": 5}, "callback must be callable or None; got 5."),
        ({"init": "zeros"}, "init must be one of 'mean', 'data', 'authors'; got 'zeros'."),
        ({"init": {"weights": 1}}, "init's keys must be one of .*; got 'weights'."),
        (
            {"init": {"components": np.ones((2, 2))}},
            r"init\['components'\] must have the shape \(8, 3\); got \(2, 2\).",
        ),
        ({"init": {"noise_variance": -1}}, r"init\['noise_variance'\] must be positive; got -1.0."),
        ({"init": {"slab_covariance": np.zeros(8)}}, "must be positive definite; got"),
        ({"init": {"activation_probs": 1.5}}, "must lie above 0 and below 1; got"),
        (
            {"updates": "best"},
            "updates must be one of 'monotone', 'printed', 'authors'; got 'best'.",
        ),
        ({"slab": "round"}, "slab must be one of 'diagonal', 'full', 'fixed'; got 'round'."),
        ({"learn_slab_means": 1}, "learn_slab_means must be True or False; got 1."),
    ],
)
def test_a_bad_parameter_gets_one_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        SpikeSlabCoding(**options).fit(GOOD)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.ones(5), r"X must have two dimensions, rows and features; got the shape \(5,\)."),
        (np.ones((2, 3, 4)), r"X must have two dimensions, .*; got the shape \(2, 3, 4\)."),
        (np.ones((0, 3)), r"X must have at least one row; got the shape \(0, 3\)."),
        (np.ones((3, 0)), r"X must have features; got 0 feature\(s\)"),
        ([[1.0, 0.0], [1.0]], "X must have rows of one length; got some of different lengths."),
        (np.array([[1.0, 0.0], [2.0 + 1.0j, 0.0]]), r"X must hold real numbers; got \(1\+0j\)"),
        (
            np.array([[1.0, 0.0], [0.0, 1e101]]),
            r"X must hold numbers of at most 1e\+100 .*1e\+101.",
        ),
        (np.array([[1e-101, 0.0]]), "X must hold a number of at least 1e-100 .* at most 1e-101."),
        ([["1", "b"], ["c", "d"]], "X must hold numbers; got 'b'."),
        (np.array([["1", "b"]]), "X must hold numbers; got 'b'."),
        (
            np.array([[0.0, -np.inf], [1.0, 0.0]]),
            "X must be finite, or NaN where a value is missing; got -inf.",
        ),
        (np.ones((10, 3)), "X must not be constant; got 1 everywhere."),
        (np.full((4, 3), np.nan), "X must have an observed value; got 12 missing ones."),
        (np.zeros((1, 1)), "X must not be constant; got 0 everywhere."),
        (np.array([["2020-01-01"], ["2021-01-01"]], "M8[D]"), r"X must hold numbers; got datetime"),
    ],
)
def test_bad_data_gets_one_sentence(estimator, X, words):
    with pytest.raises(ValueError, match=words):
        estimator(n_latents=3).fit(X)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("slab", ["diagonal", "full"])
def test_a_warm_fit_that_fails_leaves_what_was_learnt(estimator, slab):
    options = {"slab": slab} if estimator is SpikeSlabCoding else {}
    X = make_data(estimator, 200)
    model = fitted(estimator, X, warm_start=True, max_iter=3, **options)
    new = make_data(estimator, 20, seed=1)
    before, learnt = (model.score(X), model.transform(new)), vars(model).copy()

    def fail(info):
        if info.iteration == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.set_params(callback=fail).fit(X)
    assert model.score(X) == before[0]
    np.testing.assert_array_equal(model.transform(new), before[1])
    assert vars(model) | {"callback": None} == learnt
    again = model.set_params(callback=None, max_iter=4).fit(X)
    whole = fitted(estimator, X, max_iter=7, **options)
    np.testing.assert_array_equal(again.free_energies_, whole.free_energies_)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_fit_that_is_refused_leaves_what_was_learnt(estimator):
    X, new = make_data(estimator), make_data(estimator, 20, seed=1)
    model = fitted(estimator, X)
    codes = model.transform(new)
    for options, data in (({"n_states": 4, "tol": -1}, X), ({"tol": 0}, np.zeros((4, 7)))):
        with pytest.raises(ValueError, match="must"):
            model.set_params(**options).fit(data)
        np.testing.assert_array_equal(model.transform(new), codes)


def test_a_first_fit_that_fails_leaves_nothing_learnt():
    def fail(info):
        raise RuntimeError("no")

    model = BinarySparseCoding(n_latents=3, callback=fail)
    with pytest.raises(RuntimeError, match="no"):
        model.fit(make_data(BinarySparseCoding))
    with pytest.raises(NotFittedError):
        model.transform(make_data(BinarySparseCoding))


@pytest.mark.parametrize(
    ("estimator", "before", "after"),
    [
        (SpikeSlabCoding, {"slab": "diagonal"}, {"slab": "full"}),
        (SpikeSlabCoding, {"slab": "full"}, {"slab": "diagonal"}),
        (SubspaceCoding, {"rank": 1}, {"rank": 2}),
    ],
)
def test_a_warm_start_cannot_change_what_parameters_are(estimator, before, after):
    model = fitted(estimator, warm_start=True, max_iter=2, **before).set_params(**after)
    name = next(iter(before))
    sentence = f"{name} must stay {before[name]!r} with warm_start=True; got {after[name]!r}."
    with pytest.raises(ValueError, match=sentence):
        model.fit(make_data(estimator))


@pytest.mark.parametrize("answer", [True, np.bool_(True)])
def test_a_callback_that_returns_true_ends_the_run(answer):
    assert fitted(BinarySparseCoding, callback=lambda info: answer).n_iter_ == 1
    assert fitted(BinarySparseCoding, callback=lambda info: "go on").n_iter_ == 8


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_generator_is_drawn_from(estimator):
    rng = np.random.default_rng(5)
    first = fitted(estimator, random_state=rng)
    again = fitted(estimator, random_state=np.random.default_rng(5))
    np.testing.assert_array_equal(first.components_, again.components_)
    second = fitted(estimator, random_state=rng)
    assert not np.array_equal(first.components_, second.components_)


def test_data_of_another_width_is_refused_by_name():
    model = fitted(BinarySparseCoding)
    with pytest.raises(ValueError, match="X has 4 features"):
        model.transform(np.ones((2, 4)))
    model.set_params(warm_start=True, n_latents=5)
    with pytest.raises(ValueError, match=r"n_latents must stay 4 with warm_start=True; got 5."):
        model.fit(make_data(BinarySparseCoding))
