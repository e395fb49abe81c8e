"""What scikit-learn asks of every estimator; nothing is expected to fail."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from streammach.sklearn.classifier import MACHClassifier

EXACT = MACHClassifier()
HASHED = MACHClassifier(n_buckets=2, n_repetitions=24, epochs=30)


def none_fails(estimator):
    return {}


@parametrize_with_checks([EXACT, HASHED], expected_failed_checks=none_fails)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
