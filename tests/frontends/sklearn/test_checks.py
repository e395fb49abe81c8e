"""What scikit-learn asks of every estimator: no check is excused."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from streammach.frontends.sklearn.classifier import MACHClassifier

USUAL = MACHClassifier()
HASHED = MACHClassifier(n_buckets=2, n_repetitions=24, epochs=30)


@pytest.mark.usefixtures("linear")
@parametrize_with_checks([USUAL, HASHED])
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
