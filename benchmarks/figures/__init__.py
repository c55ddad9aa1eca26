"""Figures and tables of the five papers, each beside what the paper claims.

One module for each paper, and one for the bounds of accuracy of all. It has ``TITLE``, ``SOURCE``,
``SETTING`` (what is run, and how it differs from the paper) and ``comparisons(n_jobs, quick)``,
which computes, draws and compares. Numbers on the page come from these runs; the sentences around
them stand in the modules.
"""
