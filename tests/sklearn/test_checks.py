"""What scikit-learn asks of every estimator: no check is excused."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from streammach.sklearn.classifier import MACHClassifier

EXACT = MACHClassifier()
HASHED = MACHClassifier(n_buckets=2, n_repetitions=24, epochs=30)


@parametrize_with_checks([EXACT, HASHED])
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
