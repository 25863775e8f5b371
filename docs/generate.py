"""Write the parts of the documentation that repeat the source.

A page holds regions between ``<!-- generated: NAME -->`` and ``<!-- end -->``. This script fills each of them from the
declarations, the settings, the errors, the commands, the benchmarks or the Makefile, so that a table cannot drift from
the code.

    python docs/generate.py           rewrite the regions
    python docs/generate.py --check   change nothing; exit 1 if a region is out of date

What a setting or key means is a sentence here. A setting without a sentence is an error.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import colonnade
from colonnade import alignment, errors
from colonnade.cli import COMMANDS
from colonnade.engine import EngineSettings
from colonnade.exchanges.epochs import EpochVerdict
from colonnade.launch import home
from colonnade.launch.settings import config_to_json
from colonnade.messages import LIMITS, Declaration, declaration_of, kinds, seal
from colonnade.methods import method_named
from colonnade.methods.prada.config import Defence, Tune
from colonnade.session import CONTROL, Alignment, Channel, Evaluate, channel, derive_seed
from colonnade.session.control import ResumeFrom

ROOT = Path(__file__).resolve().parent.parent
REGION = re.compile(r"(<!-- generated: ([a-z0-9_ -]+) -->\n).*?(<!-- end -->)", re.DOTALL)

SETTINGS = {
    "splitnn": {
        "hidden": "Widths of the hidden layers of every encoder.",
        "cut_width": "How many numbers an encoder gives per row; this is what crosses.",
        "head_hidden": "Widths of the hidden layers of the label holder's head.",
        "activation": "The function after every layer but the head's last.",
        "dropout": "The share of values set to zero while training, from 0 up to, but not including, 1.",
        "merge": "How the head joins the activations. `sum` needs one cut width at all parties.",
        "encoders": "A table per party, `[config.encoders.NAME]`, with its own `hidden` and `cut_width`.",
        "task": "What is learned. `auto` decides from the training labels.",
        "class_weights": "Weights in the loss: none, by inverse frequency, or a list in the order of the classes.",
        "optimiser": "The name of a class in `torch.optim`; not `LBFGS`, `Muon` or `SparseAdam`.",
        "learning_rate": "The optimiser's learning rate, above 0.",
        "optimiser_options": "More arguments of that class, such as `weight_decay`.",
        "epochs": "Most passes over the training rows.",
        "batch_size": "Rows per step.",
        "patience": "Epochs without a better validation loss before training stops; 0 trains all of them.",
        "precision": "The arithmetic of all networks, and the type of what crosses.",
        "secret_start": "`false` draws first weights from the run's seed, so that it repeats and partners know them.",
        "checkpoint_every": "Steps between checkpoints within an epoch; the end of an epoch always makes one.",
        "defence": "What hides labels: noise on gradients, secret codes of the classes, or both.",
        "label_budget": "With `marvell`: what one release of a gradient may tell, above 0, below 4; less is noisier.",
    },
    "secure_lr": {
        "task": "What is learned. `auto` decides from the training labels.",
        "learning_rate": "The step along the gradient of the mean loss, above 0.",
        "schedule": "`cosine` lets the learning rate fall to zero at the last epoch; `constant` keeps it.",
        "momentum": "How much of the last step goes into the next, from 0 up to, but not including, 1.",
        "l2": "The penalty: half of it times the squared coefficients. 1 / (C times rows) is scikit-learn's C.",
        "epochs": "Passes over the training rows, at most; 0 takes as many as the guard allows, up to 3.",
        "batch_size": "Rows per step; 0 takes 16, or 8 where there is one epoch only.",
        "patience": "Epochs without a better validation loss before training stops; 0 trains all and keeps the last.",
        "minimum_support": "How many training rows a feature holder's encoded column must tell apart, at least.",
        "coefficient_noise": "Noise on coefficients given up, in units of what one row's label can move; 0 adds none.",
        "allow_leak": "Train although the guard objects; all ledgers and the report say so.",
        "key_size": "Bits of the feature holders' keys. `insecure_test` has 1024 and marks the run and its report.",
        "checkpoint_every": "Steps between checkpoints within an epoch; the end of an epoch always makes one.",
    },
    "fedcvt": {
        "level": "What protects codes: 0 nothing, 1 noise, 2 encryption.",
        "candidates": "What is trained; the best on validation rows is used, for each situation.",
        "hidden": "Widths of the layers before the codes.",
        "shared_width": "How many numbers a shared code has, at all parties.",
        "unique_width": "How many numbers a unique code has; as many as a shared one, unless `orthogonality` is `dsn`.",
        "activation": "The function after every layer of a configured network.",
        "images": "Parties whose columns are pixels: channels, height and width by party. They get convolutions.",
        "channels": "For images: the width of each block of two convolutions and a pooling.",
        "pull": "The weight of how far shared codes of a shared row are apart.",
        "own_fit": "The weight of how far estimates of the label holder's codes are off.",
        "partner_fit": "The same for feature holders' codes.",
        "own_orthogonality": "The weight of how far the label holder's two codes are from orthogonal.",
        "partner_orthogonality": "The same for feature holders' codes.",
        "orthogonality": "Which formula that is.",
        "pair_reduction": "Whether squared distances are summed or averaged over a code's numbers.",
        "temperature": "How flat attention is: below 1 it is sharper.",
        "threshold": "How sure all heads must be of a label they give, from 0 up to, but not including, 1.",
        "agreement": "With numbers as labels: how far predictions may differ, in standard deviations of the label.",
        "warmup_epochs": "Epochs before any feature holder's row gets a label.",
        "estimated_weight": "What rows with an estimated view count, in the joint head and in feature holders' heads.",
        "codes": "Use both codes, or one only.",
        "estimate": "Learn from unmatched rows, by estimates; `false` uses shared rows only.",
        "cross_view": "Each party's codes also have a head of their own.",
        "pseudo_labels": "Give labels to feature holders' own rows.",
        "self_mask": "Keep a shared row from looking at itself when it is estimated.",
        "attention": "Compare shared codes across parties, or `anchored` within one party. Level 2 is always anchored.",
        "detached": "Treat attention as constant when gradients are taken. Level 2 always does.",
        "memory_bank": "How many earlier rows attention also looks at; 0 looks at the batch only.",
        "task": "What is learned. `auto` decides from the training labels.",
        "optimiser": "The name of a class in `torch.optim`; not `LBFGS`, `Muon` or `SparseAdam`.",
        "learning_rate": "The optimiser's learning rate, above 0.",
        "weight_decay": "Its weight decay.",
        "optimiser_options": "More arguments of that class.",
        "gradient_clip": "The largest norm of a party's gradient in one step; 0 leaves gradients as they are.",
        "epochs": "Most epochs of each candidate.",
        "batch_size": "Shared rows per step.",
        "own_batch_size": "Rows per step of each party's own.",
        "patience": "Epochs without a better validation loss before training stops; 0 trains all and keeps the last.",
        "anchors": "Most shared training rows by which views are estimated after training.",
        "precision": "The arithmetic of all networks, and the type of what crosses.",
        "secret_start": "`false` draws first weights and orders from the run's seed, so that it repeats; for research.",
        "checkpoint_every": "Steps between checkpoints within an epoch; the end of an epoch always makes one.",
        "partner_answers": "What a feature holder gets for rows that only it knows.",
        "clip": "At level 1: the norm that a row's codes are clipped to.",
        "noise": "At level 1: the standard deviation of noise on each number of a code, in parts of `clip`.",
        "delta": "At level 1: the delta that epsilon is told for.",
        "defence": "Noise on gradients at levels 0 and 1, so that they tell less about labels.",
        "label_budget": "With `marvell`: what one release of a gradient may tell, above 0, below 4; less is noisier.",
        "key_size": "At level 2: bits of all keys. `insecure_test` has 1024 and marks the run and its report.",
        "head_rate": "At level 2: the learning rate of the shared weights.",
        "head_momentum": "At level 2: how much of their last step goes into the next.",
        "sealed_pull": "At level 2: `one_sided` sends shared codes with level 1's noise, to pull the label holder's.",
        "sealed_fit": "At level 2: `auto` has fit terms where they do not give attention away.",
        "least_keys": "At level 2: over how many shared rows the attention of an unmatched row spreads at least.",
    },
    "ftl": {
        "task": "What is learned. `auto` decides from the source's labels.",
        "width": "How many numbers a code has, at both parties: the paper's d.",
        "hidden": "Widths of the encoder's layers before the last one.",
        "activation": "The function after every layer of a configured encoder.",
        "trained_layers": "How many of the last layers learn together; 0 means all. Others stay as they are.",
        "loss": "The logistic loss to second order, or the squared error, which regression always has.",
        "alignment": "How the two codes of a shared row are drawn together: squared distance, or dot product.",
        "gamma": "The weight of the mean alignment loss, at most 16.",
        "decay": "The penalty: half of it times the squared weights of both encoders, without biases.",
        "labelled_rows": "How many shared training rows, chosen at random, lend their label to the loss; 0 means all.",
        "batch_size": "Shared rows per step; 0 takes all. The guard looks at one step.",
        "iterations": "Most steps.",
        "optimiser": "The name of a class in `torch.optim`; not `LBFGS`, `Muon` or `SparseAdam`.",
        "learning_rate": "The optimiser's learning rate, above 0.",
        "optimiser_options": "More arguments of that class.",
        "tolerance": "Training stops when the loss moves by less than this fraction three times; not with batches.",
        "loss_every": "Iterations from one look at the loss to the next; 0 never looks.",
        "pretrain_epochs": "Epochs of the auto-encoder that prepares each encoder on its party's own rows.",
        "reconstruction": "The weight of the auto-encoder's loss while training together.",
        "protection": "`none` sends codes and signals in the clear, for research; it marks the run's report.",
        "reveal": "`rows` takes any module, but shows the source all codes and the target all labels.",
        "key_size": "Bits of both parties' keys. `insecure_test` has 1024 and marks the run and its report.",
        "guard": "How many times more unknowns than equations a step must have.",
        "allow_leak": "Train although the guard objects; all ledgers and the report say so.",
        "noise": "Standard deviation of what each party adds to gradients that it opens for the other.",
        "safeguard": "Also learn from the labelled shared rows alone, and use what does better on validation rows.",
        "margin": "How much better transfer must do than learning alone.",
        "folds": "Parts of the source's labelled rows in the stage `validate`.",
        "source_weights": "With several sources, how much each one's score counts: a table by party; 1 by default.",
        "secret_start": "`false` draws first weights from the run's seed, so that it repeats and partners know them.",
        "checkpoint_every": "Iterations between checkpoints.",
    },
    "mpdl": {
        "bounds": "The public least and greatest value of numeric columns, by name or pattern; never from the table.",
        "levels": "The public categories of categorical columns, by name or pattern.",
        "common_columns": "Columns that all holders have, by name or pattern: nobody generates or releases them.",
        "mechanism": "What protects released columns: noise by cell, by row, none, or the paper's, which does not.",
        "epsilon": "The privacy loss of one cell, above 0; less is noisier. Cells of a row add up.",
        "epsilons": "Other values for some columns, by name or pattern.",
        "sigma": "With `row_gaussian`: the standard deviation of noise, for columns from 0 to 1.",
        "delta": "The delta that a row's epsilon is told for.",
        "dp_scope": "Noise on what others learn from only, or on everything a network is given.",
        "paper_mode": "Allow what the paper does and does not protect: its noise, and its flow for graphs.",
        "exchange": "Send columns once, or gradients at generated columns step by step.",
        "generator": "What generates columns: a ridge regression, a perceptron, or as a control their mean.",
        "penalties": "The ridge penalties per row that are tried on a fifth of the rows.",
        "generator_hidden": "The perceptron's hidden width; by default half of its inputs and outputs together.",
        "generator_epochs": "Its passes over the shared rows.",
        "generator_rate": "Its learning rate, above 0.",
        "generator_optimiser": "Its optimiser: the name of a class in `torch.optim`.",
        "generator_options": "More arguments of that class.",
        "dual_weight": "The weight of the dual penalty, with `generator` at `mlp`; the paper's 0.01 is 0.005 here.",
        "dual_weights": "Other weights for the generators of some parties.",
        "dual_consent": "Allow a dual penalty, or `interactive`, though `dp_scope` leaves them without noise.",
        "dual_form": "The paper's penalty, or that of conditional densities.",
        "dual_scale": "Divide the penalty's logarithms by the number of columns, or leave them `raw`.",
        "dual_clip": "How large these may be.",
        "support": "Most released rows by which a density is estimated.",
        "key_size": "Bits of all keys. `insecure_test` has 1024 and marks the run and its report.",
        "folds": "Parts of the shared training rows by which the two models are compared; 0 compares by none.",
        "fold_rounds": "How many of these parts are tried at most.",
        "fold_gain": "A gain in accuracy, or R², above which no further part is tried.",
        "strict_folds": "Begin generators anew for every part.",
        "completion": "Where generated columns enter: own weights for them, sent to their owner, or encrypted.",
        "block_consent": "Allow `secure_block`, which in training discloses what `ship` does.",
        "augment": "Shared rows also stand for rows that only a feature holder knows.",
        "hidden": "The width of the first layer; by default half of all inputs and outputs, at most 512.",
        "dense": "Further layers at the collaborator; by default none, 128 and 64 for images, and one as wide as the "
        "first for graphs.",
        "image": "Where columns are pixels: channels, height and width of the whole picture.",
        "channels": "For images: the width of each convolution; the first is the first layer.",
        "kernel_size": "For images: how many pixels wide and high kernels are; odd.",
        "kernels": "For images: each holder has kernels of its own, or all have the same, which all then know.",
        "task": "What is learned. `auto` decides from the training labels.",
        "optimiser": "The classifier's optimiser: the name of a class in `torch.optim`.",
        "optimiser_options": "More arguments of that class.",
        "learning_rate": "Its learning rate, above 0.",
        "clip_gradient": "The largest norm of a party's gradient in one step; 0 leaves gradients as they are.",
        "completed_weight": "Completed rows count as others do, or less, the worse columns can be generated.",
        "batch_size": "Rows per step.",
        "epochs": "Passes over all rows, of each training.",
        "checkpoint_every": "Steps between checkpoints within an epoch; the end of an epoch always makes one.",
        "precision": "The arithmetic of the classifier.",
        "secret_start": "`false` draws first weights from the run's seed, so that it repeats; for research.",
        "links": "For graphs: how columns are added up along links: encrypted, with noise, or the paper's flow.",
        "link_epsilon": "For graphs, with `edge_ldp`: the privacy loss of one link, above 0.",
        "graph_rows": "For graphs: give sums over few and many neighbours the same length, or leave them.",
        "suggested_links": "For graphs: for how many pairs of people both holders are told that a link is likely.",
    },
    "fairvfl": {
        "attributes": "The sensitive columns, by name, wherever they are. They are never inputs.",
        "removal": "Remove them from a narrow code with noise and by faster adversaries, or as the paper does.",
        "removal_weight": "How much removing an attribute counts: the paper's lambda. With 0 it is only measured.",
        "removal_weights": "Other weights for some attributes.",
        "warm_up": "Over how many epochs these weights grow from 0.",
        "cool_down": "Over which last share of the steps the model's rate falls to nothing; adversaries keep theirs.",
        "contrastive_weight": "How much mappers hide of which code a protected code was made: the paper's gamma.",
        "mapper_step": "How mappers learn from both losses: in one step, in two, or in one with half of the messages.",
        "confusion": "Aim at adversaries that cannot decide, instead of ones that are wrong.",
        "nearest": "Among how many rows with the most similar protected codes a row's counterpart is drawn.",
        "relevance": "By what similarity is measured for that.",
        "adversary_every": "Attributes are removed in every so many-th step, with so many times the weight.",
        "code_width": "How many numbers the code has that leaves the aggregator, with `robust`.",
        "code_noise": "The standard deviation of its noise, in training and in use, with `robust`.",
        "discriminator_steps": "How many steps an adversary takes for one of the model, with `robust`.",
        "discriminator_rate": "Adversaries' learning rate, as a multiple of `learning_rate`, with `robust`.",
        "protected_width": "How many numbers an attribute's holder gets about a row.",
        "protected_widths": "Other widths for some attributes.",
        "protected_noise": "The standard deviation of the noise on these numbers.",
        "label_epsilon": "The privacy loss of a sensitive value in gradients; none leaves values to be read from them.",
        "gradient_clip": "The norm that each row of an adversary's gradient is shortened to; 0 leaves it.",
        "gradient_noise": "The standard deviation of noise on it, in parts of `gradient_clip`.",
        "local": "What makes a party's code of its columns; the last three read texts.",
        "locals": "Other models for some parties.",
        "embedding": "How many numbers a category, a bin or a word becomes.",
        "bins": "Into how many bins of about equally many rows numbers are divided.",
        "text": "The column of texts, items separated by ` | `, the latest last.",
        "reader": "The column that says whose texts they are, for `lstur`, where a party has it.",
        "candidates": "For ranking: the label holder's column of candidates, texts separated by ` | `.",
        "words": "How many words of a text count.",
        "items": "How many of a row's latest items count.",
        "width": "How many numbers a party's code has; a multiple of `heads`.",
        "heads": "How many heads attention over the parties' codes has.",
        "scale": "Divide attention by the root of a head's width; the paper does not.",
        "aggregation": "How codes become one: attention, or as in the authors' code layers over all side by side.",
        "pooling_hidden": "The hidden width of the attention that pools them.",
        "task_cut": "Where the task's model is: at the label holder, or at the aggregator, which sends scores only.",
        "task_hidden": "Widths of the hidden layers of the task's model.",
        "mapper_hidden": "Widths of the hidden layers of mappers.",
        "contrastive_hidden": "Widths of the hidden layers of contrastive discriminators.",
        "discriminator_hidden": "Widths of the hidden layers of the attributes' adversaries.",
        "task": "What is learned. `auto` decides from the training labels, and never for `ranking`.",
        "optimiser": "The name of a class in `torch.optim`; not `LBFGS`, `Muon` or `SparseAdam`.",
        "optimiser_options": "More arguments of that class.",
        "learning_rate": "The optimiser's learning rate, above 0.",
        "clip_gradient": "The largest norm of a party's gradient in one step; 0 leaves gradients as they are.",
        "dropout": "The share of values set to zero while training, from 0 up to, but not including, 1.",
        "batch_size": "Rows per step.",
        "epochs": "Passes over the training rows. All are trained, and the last weights are kept.",
        "checkpoint_every": "Steps between checkpoints within an epoch; the end of an epoch always makes one.",
        "precision": "The arithmetic of all networks, and the type of what crosses.",
        "secret_start": "`false` draws first weights and noise from the run's seed, so that it repeats; for research.",
        "safeguard": "Refuse to score with a model that is no better than one answer for all rows, or from which an "
        "audit reads almost as much as from a plain one.",
        "sweep": "For the stage `sweep`: how many times the weights of removal to train with.",
        "attackers": "For the audit: of how many networks an attacker is made.",
        "audit_rows": "For the audit: most training rows whose codes attackers are given.",
        "audit_plain": "For the audit: train a plain model to compare with. Attackers are given its code too.",
        "key_size": "For the audit: bits of the label holder's key. `insecure_test` has 1024 and marks the run.",
        "count_epsilon": "For the audit: the privacy loss of a row in one attribute's counts; none adds no noise.",
        "smallest_group": "For the audit: groups of fewer rows are not counted.",
    },
    "prada": {
        "groups": "Feature groups by name, each a list of the feature holder's columns; without any it proposes four.",
        "interactions": "Every two groups also make a group together.",
        "grouped": "`false` has one network take all columns, and one number per row.",
        "adaptation": "Groups learn not to tell source rows from target rows.",
        "widths": "Layer widths of a group's network, by group (`a-b` for a pair); by default like the paper's.",
        "aggregate": "How many numbers a group gives per row.",
        "embeddings": "Numbers per category, by column; by default they grow slowly with the number of categories.",
        "shared_tables": "Lists of columns whose categories mean the same and share one embedding.",
        "ties": "By column: a category that sources hardly have, and the one that stands for it in pre-training.",
        "tie_unseen": "Tie other categories that hardly any source row has to the one most like them.",
        "novelties": "Most categories that no source row has and that get a weight of their own in fine-tuning.",
        "dropout": "The share of values set to zero while the networks train.",
        "batch_norm": "Whether the adversarial step normalises both domains in one batch, or each by itself.",
        "domain_weight": "The largest factor of the reversed gradient: the paper's lambda.",
        "domain_rate": "The discriminators' learning rate, as a multiple of the networks'.",
        "domain_sampling": "`density` draws source rows for that step by how much they look like target rows.",
        "task": "What is learned. `auto` decides from each bank's own training labels.",
        "optimiser": "The optimiser of the feature holder's networks: the name of a class in `torch.optim`.",
        "optimiser_options": "More arguments of that class.",
        "learning_rate": "Its learning rate, above 0.",
        "head_rate": "The learning rate of the scoring layer in pre-training.",
        "schedule": "How both rates fall: to zero along a cosine, as the paper's code does, or not at all.",
        "momentum": "Of the scoring layer: how much of the last step goes into the next.",
        "start": "Where all weights of groups start, before each party adds a small draw of its own.",
        "expansion": "`steps` also cuts the banks' numeric columns at their quantiles.",
        "l2": "Weight decay on the source's own columns.",
        "epochs": "Most passes over a source's training rows.",
        "batch_size": "Rows per step of pre-training. A small last batch joins the one before it.",
        "patience": "Epochs without a better validation before pre-training stops; 0 never stops. For one source.",
        "weight_average": "How much of the running average of the networks' weights each step keeps; 0 uses none.",
        "tune": "What of the networks learns from a target's labels; `unseen` is categories that no source has.",
        "tune_rate": "The learning rate of that.",
        "fine_rate": "The learning rate of the scoring layer in fine-tuning.",
        "fine_start": "Where the weights of groups start in fine-tuning; by default at `start`.",
        "fine_l2": "Weight decay on the target's own columns.",
        "fine_epochs": "Most passes over a target's labelled training rows.",
        "fine_batch_size": "Rows per step of fine-tuning.",
        "fine_patience": "As `patience`, for fine-tuning.",
        "defence": "What hides labels in gradients: noise, secret codes of the classes, both, or nothing.",
        "label_budget": "With `marvell`: what one release of a gradient may tell, above 0, below 4; less is noisier.",
        "direction_noise": "With `marvell`: further noise, in parts of the slopes' size, that blurs the weights.",
        "secret_start": "`false` draws initial weights from the run's seed, so that a run repeats; for research.",
        "most_passes": "How often one row may be scored in a run; more epochs than this are refused.",
        "compare": "What a target's model is held against: nothing, its own columns, or also a model without source.",
        "margin": "By how many standard deviations transfer may lose against these before the better one is used.",
        "explanations": "Allow the stage `explain`, which shows a target what each group adds to each score.",
        "pictures": "Draw the groups before and after training in the feature holder's report.",
        "precision": "The arithmetic of the networks.",
        "protection": "`none` sends the groups' numbers in the clear, for research; it marks the run's report.",
        "key_size": "Bits of the feature holder's key. `insecure_test` has 1024 and marks the run and its report.",
        "checkpoint_every": "Steps between checkpoints within an epoch; the end of an epoch always makes one.",
    },
}
KEYS = {
    "run": {
        "name": "Names the run and its folder. Letters, digits, `.`, `_`, `-`.",
        "method": "One of `colonnade methods`.",
        "roles": "Which party plays which role; a list where several play the same.",
        "seed": "Where all training randomness comes from. Not a secret.",
        "stage": "What is done with the method: `train`, or another of its stages. `run --stage` goes before it.",
        "after": "The folder of the run that a stage goes on from, if it is not the usual one.",
    },
    "alignment": {
        "trim": "Whether white space around ids is ignored.",
        "case": "`fold` makes upper and lower case equal.",
        "type": "`text` lets the number 7 equal the text `7`; `number` reads all ids as whole numbers, so that `007` "
        "equals 7; with `keep`, numbers and text never meet.",
        "protocol": "`ecdh` is private set intersection; `given` takes rows that another tool has matched.",
        "mode": "Who learns which rows are shared: all parties, the lead only, or nobody more than how many.",
    },
    "evaluate": {
        "test_fraction": "Share of the shared rows held out for the final evaluation.",
        "validation_fraction": "Share of the shared rows that decides when training stops.",
    },
    "party": {
        "name": "This party's name, as in `run.toml`.",
        "listen": "Where this party waits for partners, as `HOST:PORT`. Without it, it only dials.",
    },
    "partners.NAME": {
        "address": "Where that partner is reached, as `HOST:PORT`. Without it, the partner dials.",
        "id": "The column, or several, by which that partner knows the rows, if not `table.id`. May be empty in rows "
        "that the partner cannot share.",
    },
    "table": {
        "source": "A file (`.csv`, `.csv.gz`, `.tsv`, `.parquet`), relative to this folder, or a database URL.",
        "id": "The column that names the row, the same person at every party; a list where several do so together.",
        "label": "The column to predict; at the label holder only.",
        "types": "Column to `numeric` or `categorical`, where the look of the cells misleads.",
        "drop": "Columns to ignore.",
        "unlabelled": "Allow rows without a label, for methods that learn from such rows too.",
        "links": "A file of links between rows, with ids in its columns `from` and `to`, for methods that use graphs.",
        "query": "For a database URL: a SELECT. Exactly one of `query` and `table`.",
        "table": "For a database URL: a table or view, `schema.table` if needed.",
        "matches": 'A `.csv` or `.parquet` file of rows another tool matched, for runs with `protocol = "given"`.',
    },
    "policy": {
        "methods": "Methods this party takes part in.",
        "partners": "Partners it exchanges messages with.",
        "never_send": "What must not leave: any of `PLAIN`, `NOISED`, `MASKED`, `ENCRYPTED`, or messages by name.",
        "minimum_shared_rows": "Fewest shared rows for a run or an alignment.",
        "maximum_runs": "Most runs of this party in one `runs` folder.",
        "maximum_alignments": "How often rows shared with one partner may be looked for anew, in this home's life.",
        "predictions_per_day": "How many of one partner's rows this party helps to score within 24 hours.",
        "consent": "`ask` an operator before a run's first message leaves, or let the `policy` be enough.",
    },
    "engine": {
        "kind": "Where heavy work runs. `auto` is `pool` where there are two cores or more, else `inline`.",
        "workers": "How many processes share it; by default as many as there are cores.",
        "address": "For `ray`: a cluster this party has, such as `HOST:6379`. Without it, Ray is started here.",
    },
}
ALIASES = {"Defence": get_args(Defence), "Tune": get_args(Tune)}
KEY_TABLES: dict[str, type] = {
    "run": home._RunTable,
    "alignment": Alignment,
    "evaluate": Evaluate,
    "party": home._IdentityTable,
    "partners.NAME": home._PartnerTable,
    "table": home._PartyTableTable,
    "policy": home._PolicyTable,
    "engine": EngineSettings,
}
LAYOUTS = {
    1: "one byte, 0 or 1",
    2: "u32 length n, then n bytes: two's complement, little-endian, no longer than needed",
    3: "IEEE 754 double, little-endian",
    4: "u64 length n, padding, then n bytes",
    5: "u32 length n, then n bytes of UTF-8; `str(N)` where N characters are the most, not 256",
    6: "u8 element code, u8 dimensions d, d × u64 extents, padding, then the elements in C order",
    7: "as an array; the receiver makes a tensor of it",
    8: "one byte, 0 for absent or 1 for present; if present, the inner value with its tag",
    9: "u32 count, then that many inner values, each with its tag",
    10: "the fields in declared order, each with its tag; no count, no names",
    11: "u64 length n, padding, then n bytes whose meaning is the ciphertext type's",
}


def main() -> int:
    """Rewrite or check every region; return the exit status."""
    check = "--check" in sys.argv[1:]
    stale = []
    for page in pages():
        old = page.read_text(encoding="utf-8")
        new = REGION.sub(lambda found: f"{found[1]}{region(found[2])}\n{found[3]}", old)
        if new != old:
            stale.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(new, encoding="utf-8")
    if stale:
        verb = "out of date; run python docs/generate.py" if check else "rewritten"
        sys.stderr.write(f"{', '.join(stale)}: {verb}\n")
    return 1 if check and stale else 0


def pages() -> list[Path]:
    """Return every page of the documentation."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def region(name: str) -> str:
    """Return the content of one region, such as ``messages splitnn``."""
    kind, _, argument = name.partition(" ")
    if kind not in REGIONS:
        raise SystemExit(f"There is no generated region '{name}'. Known: {', '.join(sorted(REGIONS))}.")
    return REGIONS[kind](argument) if argument else REGIONS[kind]()


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [list(headings), ["---"] * len(headings), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


# Methods and messages


def roles(method: str) -> str:
    """List a method's roles."""
    return table(
        ["role", "brings", "parties"],
        ([f"`{role.name}`", role.holds, _count(role.at_least, role.at_most)] for role in method_named(method).roles),
    )


def messages(which: str) -> str:
    """List what a method or the alignment may send, from the declarations."""
    found = alignment.MESSAGES if which == "alignment" else method_named(which).messages
    return _message_table(declaration_of(cls) for cls in found)


def control() -> str:
    """List the session's own messages."""
    return _message_table(declaration_of(cls) for cls in CONTROL)


def settings(method: str) -> str:
    """List a method's settings."""
    config = method_named(method).config
    return _key_table(config, SETTINGS[method], config_to_json(config()))


def _message_table(declarations: Iterable[Declaration]) -> str:
    return table(
        ["message", "from", "to", "protection", "step", "what it is", "reveals"],
        (
            [f"`{one.name}`", one.sender, one.receiver, one.protection, one.step, one.summary, one.reveals]
            for one in declarations
        ),
    )


def _count(at_least: int, at_most: int | None) -> str:
    if at_most is None:
        return f"{at_least} or more"
    return str(at_least) if at_least == at_most else f"{at_least} to {at_most}"


# Files


def keys(which: str) -> str:
    """List the keys of one table of run.toml or party.toml."""
    name = which.replace("partners", "partners.NAME")
    return _key_table(KEY_TABLES[name], KEYS[name])


def _key_table(kind: type, meanings: dict[str, str], defaults: dict[str, Any] | None = None) -> str:
    found = dataclasses.fields(kind)
    if {field.name for field in found} != set(meanings):
        odd = sorted({field.name for field in found} ^ set(meanings))
        raise SystemExit(f"{kind.__name__}: give these a sentence in docs/generate.py, or remove it: {', '.join(odd)}")
    return table(
        ["key", "type", "default", "meaning"],
        (
            [f"`{field.name}`", f"`{_type_in_toml(str(field.type))}`", _default(field, defaults), meanings[field.name]]
            for field in found
        ),
    )


def _type_in_toml(annotation: str) -> str:
    """Say a Python annotation in TOML's words."""
    for name, choices in ALIASES.items():
        annotation = re.sub(rf"\b{name}\b", f"Literal[{', '.join(map(repr, choices))}]", annotation)
    text = re.sub(r"Literal\[([^\]]*)\]", lambda found: found[1].replace(", ", " | "), annotation).replace("'", '"')
    text = re.sub(r"tuple\[(\w+), \.\.\.\]|list\[(\w+)\]", lambda found: f"list of {found[1] or found[2]}", text)
    text = text.replace("tuple[list of str, ...]", "list of lists of str")
    text = re.sub(r"tuple\[(\"[^\]]*\"), \.\.\.\]", r"list of \1", text)
    text = text.replace("tuple[int, int, int]", "lists of three int").replace(
        "tuple[float, float]", "lists of two float"
    )
    text = re.sub(r"Mapping\[str, (.*)\]", r"table of \1", text).removesuffix(" | None")
    text = re.sub(r"Mapping\[str, (.*)\]", r"tables of \1", text).replace("table of list of", "table of lists of")
    text = re.sub("^lists of", "list of", text)
    text = text.replace("Kind", '"numeric" | "categorical"').replace("PartyEncoder", "tables").replace("Any", "values")
    for python, toml in (("str", "string"), ("int", "integer"), ("bool", "boolean")):
        text = re.sub(rf"\b{python}\b", toml, text)
    return text


def _default(field: dataclasses.Field[Any], defaults: dict[str, Any] | None) -> str:
    if defaults is not None:
        return f"`{json.dumps(defaults[field.name])}`"
    if field.default is not dataclasses.MISSING:
        return "none" if field.default is None else f"`{json.dumps(field.default)}`"
    return f"`{json.dumps(field.default_factory())}`" if callable(field.default_factory) else "required"


# Wire


def tags() -> str:
    """List the kinds of values, their tags and their bytes."""
    found = {kind.tag: kind for kind in _kinds(kinds.Kind)}
    if set(found) != set(LAYOUTS):
        raise SystemExit("docs/generate.py does not describe every kind of value in colonnade.messages.kinds")
    names = {6: "array", 8: "optional(K)", 9: "sequence(K)", 10: "record(name:K,…)", 11: "ciphertext(TYPE)"}
    return table(
        ["tag", "in the fingerprint", "bytes after the tag"],
        ([str(tag), f"`{names.get(tag) or found[tag]().describe()}`", LAYOUTS[tag]] for tag in sorted(found)),
    )


def elements() -> str:
    """List the codes of array elements."""
    return table(["code", "element"], ([str(code), f"{dtype.name}"] for code, dtype in enumerate(kinds._DTYPES)))


def limits() -> str:
    """List the bounds a decoder applies."""
    return table(["limit", "value"], ([f"`{name}`", f"{value:,}"] for name, value in vars(LIMITS).items()))


def schemas(which: str) -> str:
    """List the fingerprints of messages and the text they come from."""
    shared = {"control": CONTROL, "alignment": alignment.MESSAGES}
    found = [declaration_of(cls) for cls in (shared[which] if which in shared else method_named(which).messages)]
    count = Counter(one.name for one in found)
    # Messages of one name are told apart by who sends them.
    names = [f"`{one.name}`" + (f" from {one.sender}" if count[one.name] > 1 else "") for one in found]
    return table(
        ["message", "schema", "body"],
        ([name, f"`{one.schema.hex()}`", f"`{one.body.describe()}`"] for name, one in zip(names, found, strict=True)),
    )


def vectors() -> str:
    """Return known answers for a second implementation."""
    context = Channel._context(_Run("0" * 64), "bank", "shop", b"\x01" * 16, b"\x02" * 16)  # type: ignore[arg-type]
    lines = [
        "greeting context",
        f"  {channel._GREETING.hex()}",
        "context (run digest of 64 zeros, bank to shop, nonces 16 × 01 and 16 × 02)",
        f"  {context.hex()}",
    ]
    for content, sequence, step in ((EpochVerdict(True, False), 5, 40), (ResumeFrom(300), 1, 0)):
        _, parts = seal(declaration_of(content), content, context=context, sequence=sequence, step=step)
        frame = b"".join(parts)
        lines.append(f"{_shown(content)}, that context, sequence {sequence}, step {step}")
        lines += [f"  {frame[start : start + 32].hex()}" for start in range(0, len(frame), 32)]
    lines += [
        'derived seed (run seed 7, purpose "batches", counter 0)',
        f"  {derive_seed(7, 'batches', 0)}",
    ]
    return "\n".join(["```text", *lines, "```"])


@dataclasses.dataclass(frozen=True)
class _Run:
    """As much of a channel as the context depends on."""

    _run: str


def _kinds(kind: type) -> Iterator[Any]:
    for child in kind.__subclasses__():
        yield child
        yield from _kinds(child)


def _shown(content: Any) -> str:
    values = ", ".join(f"{field.name}={getattr(content, field.name)}" for field in dataclasses.fields(content))
    return f"{type(content).__name__}({values})"


# Errors, commands, names, targets


def error_tree() -> str:
    """List the errors by exit code."""
    return table(
        ["exit code", "error", "is a", "meaning"],
        (
            [str(found.exit_code), f"`{found.__name__}`", _parent(found), _first_paragraph(found)]
            for found in sorted(_all_errors(errors.ColonnadeError), key=lambda one: one.exit_code)
        ),
    )


def _all_errors(root: type[errors.ColonnadeError]) -> list[type[errors.ColonnadeError]]:
    # Other rooms may have errors of their own; those are no one else's to catch.
    children = [child for child in root.__subclasses__() if child.__module__ == errors.__name__]
    return [root, *(found for child in children for found in _all_errors(child))]


def _parent(found: type) -> str:
    return "" if found is errors.ColonnadeError else f"`{found.__mro__[1].__name__}`"


def commands() -> str:
    """List the commands."""
    return table(["command", "what it does"], ([f"`colonnade {name}`", text] for name, text in COMMANDS.items()))


def targets() -> str:
    """List the targets of the Makefile."""
    found = re.findall(r"^([a-z-]+):.*?## (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return table(["target", "what it does"], ([f"`make {name}`", text] for name, text in found))


def benchmarks() -> str:
    """List the benchmarks by the first line of their text; none of them is imported, some take long to load."""
    files = [path for path in sorted(ROOT.glob("benchmarks/*.py")) if path.stem not in ("__init__", "form")]
    found = {path.stem: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "" for path in files}
    return table(
        ["benchmark", "what it measures"],
        ([f"`python -m benchmarks.{name}`", text.splitlines()[0]] for name, text in found.items()),
    )


def names() -> str:
    """Describe every public name: how it is called, and its docstring's first paragraph."""
    return "\n\n".join(_entry(name) for name in colonnade.__all__ if not name.startswith("_"))


def _entry(name: str) -> str:
    value = getattr(colonnade, name)
    text = [f"### `{name}`", "", _first_paragraph(value), "", "```text", *_signature(name, value), "```"]
    if inspect.isclass(value):
        members = [line for member in _members(value) for line in _member(value, member)]
        text += ["", *members] if members else []
    return "\n".join(text)


def _signature(name: str, value: Any) -> list[str]:
    parameters = list(inspect.signature(value).parameters.values())
    lines, star = [f"{name}("], False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not star:
            lines.append("    *,")
            star = True
        plain = re.sub(r": (['\"])(.*)\1", r": \2", str(one).split(" = ")[0])
        given = "" if one.default is one.empty else " = " + repr(one.default).replace("<factory>", "…")
        lines.append(f"    {plain}{given},")
    return [*lines, ")"] if parameters else [f"{name}()"]


def _members(value: type) -> list[str]:
    own = [cls for cls in value.__mro__ if cls.__module__.startswith("colonnade")]
    # scikit-learn adds set_…_request methods of its own.
    found = {name: None for cls in own for name in vars(cls) if not name.startswith(("_", "set_"))}
    return [name for name in found if callable(getattr(value, name, None)) or _is_property(value, name)]


def _is_property(value: type, name: str) -> bool:
    return isinstance(inspect.getattr_static(value, name), property) or hasattr(
        inspect.getattr_static(value, name), "attrname"
    )


def _member(value: type, name: str) -> list[str]:
    found = inspect.getattr_static(value, name)
    if _is_property(value, name):
        return [f"- `.{name}`: {_first_paragraph(found.fget if isinstance(found, property) else found.func)}"]
    given = [one for one in inspect.signature(getattr(value, name)).parameters if one != "self"]
    return [f"- `.{name}({', '.join(given)})`: {_first_paragraph(getattr(value, name))}"]


def _first_paragraph(documented: Any) -> str:
    text = (inspect.getdoc(documented) or "").split("\n\n")[0]
    return " ".join(text.split()).replace("``", "`")


REGIONS: dict[str, Callable[..., str]] = {
    "benchmarks": benchmarks,
    "commands": commands,
    "control": control,
    "elements": elements,
    "errors": error_tree,
    "keys": keys,
    "limits": limits,
    "messages": messages,
    "names": names,
    "roles": roles,
    "schemas": schemas,
    "settings": settings,
    "tags": tags,
    "targets": targets,
    "vectors": vectors,
}

if __name__ == "__main__":
    sys.exit(main())
