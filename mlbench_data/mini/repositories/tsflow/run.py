"""Trains a forecaster on one data set and prints its errors on the rest of it.

python run.py --task_name long_term_forecast --data Weather --features S --model DLinear --pred_len 24
"""

import argparse

from tsflow.data import FORECASTING, load_dataset, select_features
from tsflow.forecasters import MODELS

SEASONAL_STEPS = {"Yearly": 6, "Quarterly": 8, "Monthly": 18, "Weekly": 13, "Daily": 14, "Hourly": 48}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--task_name", required=True, choices=["long_term_forecast", "short_term_forecast"])
    parser.add_argument("--data", required=True, choices=list(FORECASTING))
    parser.add_argument("--model", required=True, choices=list(MODELS))
    parser.add_argument("--features", choices=["M", "S", "MS"])
    parser.add_argument("--seq_len", type=int, default=96, help="steps read")
    parser.add_argument("--pred_len", type=int, help="steps predicted, for long_term_forecast")
    parser.add_argument("--seasonal_patterns", choices=list(SEASONAL_STEPS), help="for short_term_forecast")
    arguments = parser.parse_args()
    if arguments.task_name == "long_term_forecast":
        if arguments.features is None or arguments.pred_len is None:
            parser.error("long_term_forecast needs --features and --pred_len")
        if arguments.seasonal_patterns:
            parser.error("--seasonal_patterns belongs to short_term_forecast")
    else:
        if arguments.seasonal_patterns is None:
            parser.error("short_term_forecast needs --seasonal_patterns")
        if arguments.features or arguments.pred_len:
            parser.error("short_term_forecast sets --features and --pred_len itself")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    features = arguments.features or "S"
    pred_len = arguments.pred_len or SEASONAL_STEPS[arguments.seasonal_patterns]
    train, test = load_dataset(arguments.data, train_ratio=0.6)
    forecaster = MODELS[arguments.model](seq_len=arguments.seq_len, pred_len=pred_len)
    forecaster.fit(*select_features(train, features))
    errors = forecaster.evaluate(*select_features(test, features))
    print(f"{arguments.task_name} {arguments.data} {arguments.model} {features} pred_len={pred_len}")
    print(f"mse: {errors['mse']:.4f} mae: {errors['mae']:.4f}")


if __name__ == "__main__":
    main()
