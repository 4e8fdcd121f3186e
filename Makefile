# `make demo` and `make test` are all a newcomer needs; `make help` lists the rest.
SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help demo test lint types rooms unit agent hostile stores postgres simulation templates e2e ssh faults quiet prove bench format install clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

demo: ## set up ./.venv and train a small GPT on a machine that is taken away half-way
	@scripts/demo.sh

test: ## set up ./.venv and run every suite, with the time of each
	@scripts/test.sh

lint: ## ruff: rules and formatting
	@scripts/test.sh lint

types: ## mypy, strict
	@scripts/test.sh types

rooms: ## import-linter: who imports whom
	@scripts/test.sh rooms

ssh: ## jobs on real sshd in name spaces of their own; needs root on Linux
	@scripts/test.sh ssh

unit: ## tests that start no process and reach no network
	@scripts/test.sh unit

agent: ## the program on a machine, as processes that run jobs, are killed and cut off
	@scripts/test.sh agent

hostile: ## requests, messages and files that nobody should send
	@scripts/test.sh hostile

stores: ## tests of stores on servers of their own, in four protocols
	@scripts/test.sh stores

postgres: ## the control plane's tests on a PostgreSQL server of their own
	@scripts/test.sh postgres

simulation: ## the control plane under seeded faults in virtual time, and bugs planted to be found there
	@scripts/test.sh simulation

templates: ## the shipped templates, trained for real in an environment of their own
	@scripts/test.sh templates

e2e: ## tests that drive the real command, server and agent
	@scripts/test.sh e2e

faults: ## tests that kill, cut off and fill up
	@scripts/test.sh faults

quiet: ## tests that measure time, one after the other
	@scripts/test.sh quiet

bench: ## what commands, starts, submissions, searches, sockets and lists of 100,000 jobs cost; docs/speed.md
	@scripts/setup.sh dev && .venv/bin/python -m benchmarks.figures && .venv/bin/python -m benchmarks.listing

prove: ## the long proofs of docs/reliability.md, all or ROWS="kill9 simulation"; takes hours and keeps the figures
	@scripts/prove.sh $(ROWS)

format: install ## rewrite the sources the way `make lint` wants them
	@.venv/bin/ruff check --fix --quiet . ; .venv/bin/ruff format .

install: ## set up ./.venv with everything for development
	@scripts/setup.sh dev

clean: ## remove ./.venv, the demo's state and every cache
	@scripts/clean.sh
