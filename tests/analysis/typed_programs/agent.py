"""An agent that learns to land."""

import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.vec_env import SubprocVecEnv

if __name__ == "__main__":
    worlds = SubprocVecEnv([lambda: gym.make("LunarLander-v3") for _ in range(8)])
    agent = PPO("MlpPolicy", worlds, n_steps=1024, batch_size=64, gamma=0.999, device="auto", verbose=1)
    agent.learn(total_timesteps=2_000_000, callback=CheckpointCallback(save_freq=50_000, save_path="landers"))
    agent.save("lander")
