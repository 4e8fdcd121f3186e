"""Compares three models of wine by cross-validation."""

import pandas as pd
from sklearn.datasets import load_wine
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

x, y = load_wine(return_X_y=True, as_frame=True)
models = {
    "line": make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
    "forest": RandomForestClassifier(n_estimators=400, n_jobs=-1, random_state=0),
    "boosted": GradientBoostingClassifier(random_state=0),
}
rows = []
for name, model in models.items():
    scores = cross_validate(model, x, y, cv=10, scoring=("accuracy", "f1_macro"))
    rows.append({"model": name, "accuracy": scores["test_accuracy"].mean(), "f1": scores["test_f1_macro"].mean()})
print(pd.DataFrame(rows).to_string(index=False))
