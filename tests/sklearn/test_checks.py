"""What scikit-learn asks of every estimator."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from streammach.sklearn.classifier import MACHClassifier

EXACT = MACHClassifier()
HASHED = MACHClassifier(n_buckets=2, n_repetitions=24, epochs=30)


def expected(estimator):
    """An indicator is a matrix here: a list of lists has the labels of each row."""
    why = "a list of lists holds labels, not an indicator"
    return {"check_classifiers_multilabel_representation_invariance": why}


@parametrize_with_checks([EXACT, HASHED], expected_failed_checks=expected)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
