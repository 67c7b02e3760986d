from stormpg.envs import mountain_car

rllab_mountain_car = mountain_car.mountain_car_continuous
