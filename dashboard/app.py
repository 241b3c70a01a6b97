"""The script that Streamlit runs: which pages there are, and what stands on all of them."""

from collections.abc import Callable

import streamlit as st

from dashboard import data, show
from dashboard.views import breakdown, explorer, overview
from ledger.store import LedgerAway, LedgerTooNew, NotALedgerUrl


def main() -> None:
    """One run: the page that the address asks for."""
    st.set_page_config(page_title="Faregate", page_icon=":material/toll:", layout="wide")
    page = st.navigation(
        [
            st.Page(
                overview.draw,
                title="Overview",
                icon=":material/monitoring:",
                url_path="overview",
                default=True,
            ),
            st.Page(
                breakdown.draw, title="Breakdown", icon=":material/stacked_bar_chart:", url_path="breakdown"
            ),
            st.Page(explorer.draw, title="Requests", icon=":material/receipt_long:", url_path="requests"),
        ],
        position="top",
    )
    shown(page.run)


def shown(draw: Callable[[], None]) -> None:
    """A page under the banner that all of them have; what stops it is said in a sentence."""
    try:
        show.banner()
        draw()
    except LedgerAway as problem:
        st.error(
            f"The ledger cannot be read just now ({problem}). The gateway does not depend on this page; reload it to "
            "try again.",
            title="The ledger is away",
        )
    except LedgerTooNew:
        st.error(
            "A newer Faregate has changed this ledger. Update the dashboard.", title="The ledger is newer"
        )
    except (NotALedgerUrl, data.NoLedger):
        st.error(
            "Start the pages with `faregate dashboard --ledger sqlite:///PATH`.", title="No ledger to show"
        )


if __name__ == "__main__":
    main()
