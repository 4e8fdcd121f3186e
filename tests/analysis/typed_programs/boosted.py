"""Which flights are late? Boosted trees on the GPU."""

from pathlib import Path

import numpy as np
import pandas as pd
import xgboost as xgb
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

frame = pd.read_parquet(Path("flights.parquet"))
frame["hour"] = frame["departure"].dt.hour
target = (frame.pop("delay") > 15).astype(np.int8)
left, right, y_left, y_right = train_test_split(frame.select_dtypes("number"), target, test_size=0.2, random_state=7)
train, test = xgb.DMatrix(left, y_left), xgb.DMatrix(right, y_right)
settings = {"objective": "binary:logistic", "tree_method": "hist", "device": "cuda", "max_depth": 9, "eta": 0.08}
booster = xgb.train(settings, train, num_boost_round=800, evals=[(test, "test")], early_stopping_rounds=30)
print("area:", roc_auc_score(y_right, booster.predict(test)))
booster.save_model("late.json")
