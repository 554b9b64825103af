"""`tidewheel` with a defect in it: what PLANTED_DEFECT names is planted, then the command runs as ever.

PLANTED_DEFECT=no_term_check python -m tests.support.planted_process dispatcher --listen 127.0.0.1:0
"""

from __future__ import annotations

import os

from tests.support.planted import plant
from tests.support.planter import Planter
from tools.cli.main import main

VARIABLE = "PLANTED_DEFECT"

if __name__ == "__main__":
    for defect in filter(None, os.environ.get(VARIABLE, "").split(",")):
        plant(defect, Planter())
    main()
