"""The paper's experiments, from recipes to reports that set published numbers beside ours."""
