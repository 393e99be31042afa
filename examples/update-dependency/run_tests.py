"""Run the unit tests of the working directory; `python3 run_tests.py`. Exit status 1 if one fails.

The report is short, and the same for the same mistakes: no times, no paths of this machine, nothing that depends on the
version of Python. So a recorded answer to it is found again, and a model is not paid to read it twice.
"""

import os
import sys
import traceback
import unittest


class Result(unittest.TestResult):
    def addSuccess(self, test):
        print(f"ok      {test._testMethodName}")

    def addError(self, test, err):
        here = [frame for frame in traceback.extract_tb(err[2]) if frame.filename.startswith(os.getcwd())]
        place = f" ({os.path.basename(here[-1].filename)}:{here[-1].lineno}: {here[-1].line})" if here else ""
        print(f"FAILED  {test._testMethodName}: {err[0].__name__}: {err[1]}{place}")
        super().addError(test, err)

    addFailure = addError


sys.dont_write_bytecode = True
sys.path[:0] = [os.getcwd(), os.path.join(os.getcwd(), "vendor")]
suite = unittest.defaultTestLoader.discover(".")
result = suite.run(Result())
print(f"{result.testsRun} tests, {len(result.errors)} failed")
sys.exit(bool(result.errors or not result.testsRun))
