"""Tables that pandas writes, in its types: what they hold is what the output of smdl select holds."""

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.files.test_exact import COLUMNS, FEATURES, FUZZ, check_csv, check_parquet

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]
pandas = pytest.importorskip("pandas")


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def column(values, kind):
    """Return the values in pandas' own choice of a type, in its nullable types, or as categories."""
    if kind == "nullable":
        return pandas.Series(values, dtype=object).convert_dtypes()
    return pandas.Series(pandas.array(values, dtype=object)).astype("category" if kind == "category" else object)


def table(ids, groups, features, kinds):
    return pandas.DataFrame({"id": column(ids, kinds[0]), "g": column(groups, kinds[1]), "a": features})


KINDS = st.tuples(*[st.sampled_from(["object", "nullable", "category"])] * 2)


def written_to_parquet(ids, groups, features, kinds):
    table(ids, groups, features, kinds).to_parquet("x.parquet")
    written = pq.read_table("x.parquet").to_pydict()
    check_parquet(written["id"], written["g"], features)
    return True


def written_to_csv(ids, groups, features, kinds, index):
    table(ids, groups, features, kinds).to_csv("x.csv", index=index)
    return check_csv(features)


WRITERS = {
    "pandas to_parquet": (written_to_parquet, (COLUMNS, COLUMNS, FEATURES, KINDS)),
    "pandas to_csv": (written_to_csv, (COLUMNS, COLUMNS, FEATURES, KINDS, st.booleans())),
}


@pytest.mark.parametrize(("writer", "columns"), WRITERS.values(), ids=WRITERS)
@FUZZ
@given(data=st.data())
def test_what_pandas_writes_is_what_the_output_holds(writer, columns, data):
    writer(*(data.draw(column) for column in columns))
