"""The sessions of Qwen Code."""
