"""The pages that say what runs and what backends do say what is so."""

from harness import contract, support


def test_support_page_is_true():
    text = support.PAGE.read_text()
    assert text == support.page(), (
        "write it anew: cd tests && python -m harness.support"
    )


def test_the_contract_page_is_that_of_the_suite():
    text = contract.PAGE.read_text()
    remedy = "write it anew: cd tests && python -m harness.contract"
    assert text == contract.page(), remedy
    skipped = {
        test
        for tests in contract.REASONS.values()
        for names in tests.values()
        for test in names
    }
    assert skipped <= {*contract.promises()}
